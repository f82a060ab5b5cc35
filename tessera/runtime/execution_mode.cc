#include "tessera/runtime/execution_mode.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "tessera/base/env.h"
#include "tessera/base/error.h"
#include "tessera/base/quote.h"

namespace tessera {
namespace {

struct ModeName {
  std::string_view own, environment;
  ExecutionMode mode;
};

constexpr std::array<ModeName, 3> kModes{{
    {"eager", "defer_never", ExecutionMode::kEager},
    {"eager-blocking", "defer_never_and_launch_blocking", ExecutionMode::kEagerBlocking},
    {"fused", "defer_and_fuse", ExecutionMode::kFused},
}};

thread_local std::optional<ExecutionMode> current_mode;

}  // namespace

std::string_view execution_mode_name(ExecutionMode mode) {
  return kModes.at(static_cast<std::size_t>(mode)).own;
}

std::optional<ExecutionMode> execution_mode_from_environment() {
  if (auto value = env("TESSERA_EAGER_MODE")) {
    std::string lower = *value;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    std::string names;
    for (const ModeName& name : kModes) {
      if (lower == name.own || lower == name.environment) return name.mode;
      names.append(names.empty() ? "" : ", ").append(name.environment);
    }
    invalid_argument("TESSERA_EAGER_MODE={}: there is no such mode; the modes are {}", quote(*value), names);
  }
  bool blocking = env_flag("TPU_LAUNCH_BLOCKING").value_or(false);
  bool fused = env_flag("TORCH_TPU_DEFER_AND_FUSE").value_or(false);
  if (blocking && fused) {
    invalid_argument(
        "TPU_LAUNCH_BLOCKING and TORCH_TPU_DEFER_AND_FUSE ask for two different modes; set one of them");
  }
  if (blocking) return ExecutionMode::kEagerBlocking;
  if (fused) return ExecutionMode::kFused;
  return std::nullopt;
}

ScopedExecutionMode::ScopedExecutionMode(ExecutionMode mode) : previous_(std::exchange(current_mode, mode)) {}
ScopedExecutionMode::~ScopedExecutionMode() { current_mode = previous_; }
std::optional<ExecutionMode> ScopedExecutionMode::current() { return current_mode; }

}  // namespace tessera
