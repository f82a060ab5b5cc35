// The execution modes side by side on one checkpoint: seconds a step, compile seconds, programs and counted
// peak bytes. Prints one JSON object.
//
//   bench_modes MODEL [--size 512] [--steps 2] [--repeat 3] [--dtype bf16] [--device cpu]
//
// First each mode in a context of its own, for what it compiles from nothing; then all modes by turns in one
// context, everything compiled, for the time of a step (best and median of --repeat rounds, the machine's
// moods shared out).
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/arguments.h"
#include "tessera/checkpoint/model_folder.h"
#include "tessera/pipelines/text_to_image.h"

namespace tessera::bench {
namespace {

enum class Compiled { kNothing, kComponents, kRepeatedBlocks };

struct Mode {
  const char* name;
  ExecutionMode execution;
  Compiled compiled;
};

constexpr Mode kModes[] = {
    {"eager", ExecutionMode::kEager, Compiled::kNothing},
    {"eager-blocking", ExecutionMode::kEagerBlocking, Compiled::kNothing},
    {"fused", ExecutionMode::kFused, Compiled::kNothing},
    {"compile", ExecutionMode::kEager, Compiled::kComponents},
    {"compile-blocks", ExecutionMode::kEager, Compiled::kRepeatedBlocks},
};

struct Setting {
  checkpoint::ModelFolder folder;
  pipelines::LoadOptions load;
  pipelines::Arguments call;
};

Context::Options without_disk() {
  Context::Options options;
  options.mode = ExecutionMode::kEager;
  options.disk_cache = nullptr;
  return options;
}

// One call in that mode; the seconds of a step.
double step_seconds(pipelines::TextToImage& pipeline, const Mode& mode, const Setting& setting) {
  ScopedExecutionMode scope(mode.execution);
  for (pipelines::Component* component : pipeline.components()) {
    component->module->compile_nothing();
    if (mode.compiled == Compiled::kComponents) component->module->compile({.fullgraph = true});
  }
  if (mode.compiled == Compiled::kRepeatedBlocks)
    pipeline.module("transformer").compile_repeated_blocks({.fullgraph = true});
  pipelines::Result result = pipeline.generate(setting.call);
  return result.seconds.at("denoise") / result.num_inference_steps;
}

nlohmann::ordered_json from_nothing(const Mode& mode, const Setting& setting) {
  Context context(without_disk());
  auto pipeline = pipelines::load_pipeline(setting.folder, context, setting.load);
  std::int64_t weights = pipeline->weight_bytes();
  step_seconds(*pipeline, mode, setting);
  Statistics statistics = context.statistics();
  return {{"mode", mode.name},
          {"compiles", statistics.compiles},
          {"compile_seconds", statistics.compile_seconds},
          {"peak_bytes", context.memory(*pipeline->mesh()).peak()},
          {"weight_bytes", weights}};
}

int run(int argc, char** argv) {
  Arguments arguments(
      argc, argv, {{"size", "512"}, {"steps", "2"}, {"repeat", "3"}, {"dtype", "bf16"}, {"device", "cpu"}});
  if (arguments.texts().size() != 1)
    invalid_argument("name one checkpoint: bench_modes MODEL [--size N ...]");
  std::string dtype = arguments.text("dtype");
  if (dtype != "bf16" && dtype != "f32") invalid_argument("--dtype '{}' is neither bf16 nor f32", dtype);
  Setting setting{checkpoint::ModelFolder::open(arguments.texts()[0]), {}, {}};
  setting.load.device = DeviceName::parse(arguments.text("device"));
  setting.load.dtype = dtype == "bf16" ? DType::kBF16 : DType::kF32;
  setting.call.prompt = {"a red apple"};
  setting.call.seeds = {1};
  setting.call.height = setting.call.width = arguments.count("size");
  setting.call.num_inference_steps = arguments.count("steps");

  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Mode& mode : kModes) rows.push_back(from_nothing(mode, setting));

  Context context(without_disk());
  auto pipeline = pipelines::load_pipeline(setting.folder, context, setting.load);
  std::vector<std::vector<double>> seconds(std::size(kModes));
  for (int round = -1; round < arguments.count("repeat"); ++round) {
    for (std::size_t m = 0; m < std::size(kModes); ++m) {
      double step = step_seconds(*pipeline, kModes[m], setting);
      if (round >= 0) seconds[m].push_back(step);  // the first round compiles
    }
  }
  for (std::size_t m = 0; m < std::size(kModes); ++m) {
    Times times = times_of(seconds[m]);
    rows[m]["seconds_per_step"] = times.best;
    rows[m]["median_seconds_per_step"] = times.median;
    rows[m]["speed_against_eager"] = times_of(seconds[0]).best / times.best;
  }
  nlohmann::ordered_json out{{"size", arguments.count("size")},
                             {"steps", arguments.count("steps")},
                             {"dtype", dtype},
                             {"device", arguments.text("device")},
                             {"modes", rows}};
  std::printf("%s\n", out.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  try {
    return tessera::bench::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
