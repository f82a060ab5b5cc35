#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tessera::testing {

// A checkpoint like `model` whose model_index.json has other values for the keys of `changes`, made at
// `copy`; its components are links to the original's.
inline std::filesystem::path edited_model(const std::filesystem::path& model, const nlohmann::json& changes,
                                          const std::filesystem::path& copy) {
  namespace fs = std::filesystem;
  fs::remove_all(copy);
  fs::create_directories(copy);
  for (const auto& entry : fs::directory_iterator(fs::absolute(model))) {
    if (entry.path().filename() != "model_index.json")
      fs::create_symlink(entry.path(), copy / entry.path().filename());
  }
  std::ifstream in(model / "model_index.json");
  nlohmann::json index = nlohmann::json::parse(in);
  index.update(changes);
  std::ofstream(copy / "model_index.json") << index;
  return copy;
}

}  // namespace tessera::testing
