#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// When recorded operations become programs (README.md has the table).
enum class ExecutionMode {
  kEager,          // at once, an operation a program, launched asynchronously
  kEagerBlocking,  // the same, and each result is waited for, so that an error names its operation
  kFused,          // later, many operations a program: see PendingGraph
};

// "eager", "eager-blocking", "fused".
std::string_view execution_mode_name(ExecutionMode mode);

// The mode that the environment asks for: TESSERA_EAGER_MODE (defer_never, defer_never_and_launch_blocking,
// defer_and_fuse, or this project's own names; in any case), else TPU_LAUNCH_BLOCKING=1 or
// TORCH_TPU_DEFER_AND_FUSE=1. Throws kInvalidArgument, listing the names, for what it does not know, and for
// both flags at once.
std::optional<ExecutionMode> execution_mode_from_environment();

// Sets this thread's mode while it lives; the innermost one wins over the Context's. What is still pending
// when it ends stays pending until the next operation or read.
class ScopedExecutionMode {
 public:
  explicit ScopedExecutionMode(ExecutionMode mode);
  ~ScopedExecutionMode();
  ScopedExecutionMode(const ScopedExecutionMode&) = delete;
  ScopedExecutionMode& operator=(const ScopedExecutionMode&) = delete;

  // The innermost scope's mode on this thread, if there is one.
  static std::optional<ExecutionMode> current();

 private:
  std::optional<ExecutionMode> previous_;
};

}  // namespace tessera
