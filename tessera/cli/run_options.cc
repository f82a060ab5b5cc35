#include "tessera/cli/run_options.h"

#include <fmt/core.h>

#include "tessera/base/error.h"

namespace tessera::cli {
namespace {

void read_mode(const CommandLine& line, RunOptions& options) {
  std::optional<std::string> mode =
      line.choice("mode", {"eager", "eager-blocking", "fused", "compile", "compile-blocks"});
  if (mode == "eager") options.mode = ExecutionMode::kEager;
  if (mode == "eager-blocking") options.mode = ExecutionMode::kEagerBlocking;
  if (mode == "fused") options.mode = ExecutionMode::kFused;
  if (mode == "compile") options.compile = Compile::kComponents;
  if (mode == "compile-blocks") options.compile = Compile::kRepeatedBlocks;
  // An option wins over the environment, and what is wrong there is said before work begins.
  if (options.mode) return;
  try {
    options.mode = execution_mode_from_environment();
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
}

}  // namespace

void declare_run_options(CommandLine& line) {
  line.option("--device", "NAME",
              "cpu, tpu or cuda, as in tpu:1 (default: an accelerator if there is one, else cpu)");
  line.option("--dtype", "TYPE", "f32 or bf16 (default: f32 on cpu, else bf16)");
  line.option("--mode", "MODE",
              "how operations become programs: eager, eager-blocking, fused, compile, compile-blocks");
}

RunOptions read_run_options(const CommandLine& line) {
  RunOptions options;
  if (auto device = line.text("device")) {
    try {
      options.device = DeviceName::parse(*device);
    } catch (const Error& e) {
      throw UsageError(fmt::format("--device: {}", e.what()));
    }
  }
  std::optional<std::string> dtype = line.choice("dtype", {"bf16", "f16", "f32"});
  if (dtype == "f16") {
    throw UsageError(
        "--dtype f16 is not available: files in f16 are read and converted, but computing is in bf16 or f32");
  }
  if (dtype) options.dtype = *dtype == "bf16" ? DType::kBF16 : DType::kF32;
  read_mode(line, options);
  return options;
}

Where::Where(const RunOptions& options, Context& context)
    : device(options.device ? *options.device : context.first_accelerator().value_or(DeviceName{})),
      dtype(options.dtype.value_or(device.name == "cpu" ? DType::kF32 : DType::kBF16)) {}

std::string device_text(const DeviceName& device) { return fmt::format("{}:{}", device.name, device.index); }

std::string_view mode_text(const RunOptions& options) {
  if (options.compile == Compile::kComponents) return "compile";
  if (options.compile == Compile::kRepeatedBlocks) return "compile-blocks";
  return execution_mode_name(options.mode.value_or(ExecutionMode::kEager));
}

}  // namespace tessera::cli
