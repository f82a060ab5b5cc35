#include "tessera/cli/shared.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "tessera/base/error.h"

namespace tessera::cli {

namespace fs = std::filesystem;

checkpoint::ModelFolder open_model(const std::optional<std::string>& name) {
  if (name) return checkpoint::ModelFolder::open(*name);
  std::vector<fs::path> places;
  std::error_code ignored;
  fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  if (!program.empty()) {
    places.push_back(program.parent_path() / "share" / "tessera" / "models" / "demo");
    places.push_back(program.parent_path().parent_path() / "models" / "demo");
  }
  places.emplace_back(TESSERA_DEMO_MODEL);
  std::string looked;
  for (const fs::path& place : places) {
    if (fs::exists(place / "model_index.json", ignored)) return checkpoint::ModelFolder::open(place.string());
    looked += (looked.empty() ? "" : ", ") + place.string();
  }
  fail(ErrorCode::kNotFound, "no model was named and the demo checkpoint is not there; looked at {}", looked);
}

void print(std::string_view text) {
  errno = 0;
  std::size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if (written == text.size() && std::fflush(stdout) == 0) return;
  fail(ErrorCode::kUnavailable, "standard output cannot be written: {}",
       std::system_category().message(errno));
}

void print_json(const nlohmann::ordered_json& json) {
  print(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

std::string with_commas(std::int64_t n) {
  std::string digits = fmt::format("{}", n);
  for (auto i = static_cast<std::int64_t>(digits.size()) - 3; i > 0; i -= 3) {
    digits.insert(static_cast<std::size_t>(i), ",");
  }
  return digits;
}

}  // namespace tessera::cli
