#pragma once

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "tessera/checkpoint/safetensors.h"
#include "tessera/nn/config.h"
#include "tessera/nn/parameter.h"
#include "tests/testing/model_copy.h"

namespace tessera::testing {

// A checkpoint like `model`, made at `copy`, whose transformer has other values for the keys of `changes` in
// its config, and random weights in f32.
template <typename Model, typename Config>
std::filesystem::path with_random_transformer(const std::filesystem::path& model,
                                              const nlohmann::json& changes,
                                              const std::filesystem::path& copy) {
  std::filesystem::path folder = edited_model(model, nlohmann::json::object(), copy),
                        transformer = folder / "transformer";
  std::filesystem::remove(transformer);
  std::filesystem::create_directories(transformer);
  std::ifstream in(model / "transformer" / "config.json");
  nlohmann::json config = nlohmann::json::parse(in);
  config.update(changes);
  std::ofstream(transformer / "config.json") << config;

  nn::ParameterStore shapes{nn::ParameterStore::ShapesOnly{}};
  Model built(Config::from_json(nn::Config(config, "transformer config")), shapes.root());
  std::mt19937 engine(8);
  std::vector<checkpoint::TensorView> tensors;
  for (const auto& [key, shape] : shapes.shapes()) {
    float spread = shape.rank() == 1 ? 0.1f : 1.0f / std::sqrt(static_cast<float>(shape[-1]));
    std::normal_distribution<float> normal(shape.rank() == 1 ? 1.0f : 0.0f, spread);
    auto data = std::make_shared<std::vector<float>>(static_cast<std::size_t>(shape.elements()));
    for (float& value : *data) value = normal(engine);
    tensors.push_back({key, DType::kF32, shape, std::as_bytes(std::span(*data)), data});
  }
  checkpoint::write_safetensors(transformer / "diffusion_pytorch_model.safetensors", tensors);
  return folder;
}

}  // namespace tessera::testing
