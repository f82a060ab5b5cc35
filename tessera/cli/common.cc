#include "tessera/cli/common.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/log.h"

namespace tessera::cli {

namespace fs = std::filesystem;

checkpoint::ModelFolder open_model(const std::string& model) {
  if (!model.empty()) return checkpoint::ModelFolder::open(model);
  std::error_code ignored;
  fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const fs::path& place : {fs::path(TESSERA_DEMO_MODEL), program / "models" / "demo"}) {
    if (fs::exists(place / "model_index.json", ignored)) return checkpoint::ModelFolder::open(place.string());
  }
  fail(ErrorCode::kNotFound, "no MODEL was given and the demonstration checkpoint is not at {}",
       TESSERA_DEMO_MODEL);
}

void print_text(const std::string& text) {
  bool ok = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!ok) fail(ErrorCode::kUnavailable, "standard output cannot be written");
}

void print_json(const nlohmann::json& json) {
  print_text(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void note(const std::string& line) { spdlog::get("tessera")->info("{}", line); }

void install_log() {
  auto logger = spdlog::stderr_logger_mt("tessera");
  logger->set_pattern("%v");
  set_log_callback([logger](LogLevel level, const std::string& message) {
    if (level == LogLevel::kWarning) logger->warn("warning: {}", message);
  });
}

}  // namespace tessera::cli
