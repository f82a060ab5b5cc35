#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/dtype.h"
#include "tessera/cli/command_line.h"
#include "tessera/runtime/context.h"

namespace tessera::cli {

// What is recorded and compiled as a whole, beyond what the execution mode does.
enum class Compile { kNothing, kComponents, kRepeatedBlocks };

// Where and how models run: what subcommands that run them have in common.
struct RunOptions {
  std::optional<DeviceName> device;   // not given: the first accelerator, else the CPU
  std::optional<DType> dtype;         // not given: f32 on the CPU, else bf16
  std::optional<ExecutionMode> mode;  // not given: as the environment says
  Compile compile = Compile::kNothing;
};

// --device, --dtype, --mode.
void declare_run_options(CommandLine& line);
// Throws UsageError.
RunOptions read_run_options(const CommandLine& line);

// Where the work is done, and in what.
struct Where {
  DeviceName device;
  DType dtype;
  Where(const RunOptions& options, Context& context);
};

// "cpu:0"
std::string device_text(const DeviceName& device);
// As --mode takes it.
std::string_view mode_text(const RunOptions& options);

}  // namespace tessera::cli
