#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/base/half.h"
#include "tessera/checkpoint/safetensors.h"

// Recorded results and how to compare with them.
namespace tessera::testing {

// The folders with recorded data: the compact set of the project, and the larger one where it is beside it.
inline std::filesystem::path compact_data() { return TESSERA_TEST_DATA; }
inline std::filesystem::path reference_data() { return TESSERA_REFERENCE_DATA; }

inline std::vector<float> to_f32(const checkpoint::TensorView& t) {
  std::vector<float> out(static_cast<std::size_t>(t.shape.elements()));
  convert_elements(t.dtype, t.data.data(), DType::kF32, reinterpret_cast<std::byte*>(out.data()),
                   t.shape.elements());
  return out;
}

inline std::vector<std::int32_t> to_i32(const checkpoint::TensorView& t) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(t.shape.elements()));
  std::memcpy(out.data(), t.data.data(), t.data.size());
  return out;
}

// The largest difference as a part of the reference's own maximum.
inline double relative_to_max(const std::vector<float>& mine, const std::vector<float>& reference) {
  if (mine.size() != reference.size()) return INFINITY;
  double worst = 0, top = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    double d = std::abs(static_cast<double>(mine[i]) - static_cast<double>(reference[i]));
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
    top = std::max(top, std::abs(static_cast<double>(reference[i])));
  }
  return top == 0 ? worst : worst / top;
}

// The rms of the difference as a part of the reference's rms.
inline double relative_rms(const std::vector<float>& mine, const std::vector<float>& reference) {
  if (mine.size() != reference.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    double d = static_cast<double>(mine[i]) - static_cast<double>(reference[i]);
    difference += d * d;
    norm += static_cast<double>(reference[i]) * static_cast<double>(reference[i]);
  }
  return std::sqrt(difference / norm);
}

struct Golden {
  std::filesystem::path root, model_folder;
  std::string model, name;
  nlohmann::json json;
  checkpoint::SafetensorsFile tensors;

  const checkpoint::TensorView& at(const std::string& tensor) const {
    const checkpoint::TensorView* found = tensors.find(tensor);
    if (found == nullptr) throw std::runtime_error(name + " has no " + tensor);
    return *found;
  }
};

inline Golden load_golden(const std::filesystem::path& root, const std::string& model,
                          const std::string& name) {
  std::ifstream in(root / "goldens" / model / (name + ".json"));
  return {root,
          root / "models" / model,
          model,
          name,
          nlohmann::json::parse(in),
          checkpoint::SafetensorsFile(root / "goldens" / model / (name + ".safetensors"))};
}

// The names of a model's cases, sorted.
inline std::vector<std::string> golden_cases(const std::filesystem::path& root, const std::string& model) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(root / "goldens" / model)) {
    if (entry.path().extension() == ".json") out.push_back(entry.path().stem());
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace tessera::testing
