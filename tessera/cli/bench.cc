#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/cli/command_line.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/console.h"
#include "tessera/cli/interrupt.h"
#include "tessera/cli/memory_sampler.h"
#include "tessera/cli/output_names.h"
#include "tessera/cli/run_options.h"
#include "tessera/cli/shared.h"
#include "tessera/pipelines/lone_component.h"
#include "tessera/runtime/traced_mesh.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Request : RunOptions {
  std::optional<std::string> model;
  std::string component;
  pipelines::CallSizes sizes;
  int repeat = 3;
  std::optional<std::filesystem::path> trace;
};

std::optional<Request> parse(const std::vector<std::string>& arguments) {
  CommandLine line(
      "tessera bench",
      "Times one component of a checkpoint on random input, after a call that compiles, and prints one "
      "JSON object. Needs no tokenizers.",
      "example:\n  tessera bench models/demo --component transformer --size 96 --mode compile\n");
  line.positional("MODEL",
                  "Diffusers folder, or Hub id in the local Hub cache (default: the demo checkpoint)");
  line.option("--component", "NAME", "transformer, vae, text_encoder, text_encoder_2, text_encoder_3");
  line.option("--size", "PIXELS", "side of the square picture (default: 512)");
  line.option("--batch", "N", "pictures or texts at once (default: 1)");
  line.option("--text-tokens", "N", "tokens of the text (default: 333, or the most that the encoder takes)");
  line.option("--repeat", "N", "calls that are timed (default: 3)");
  line.option("--trace", "FILE", "write the calls, programs and transfers as a Chrome trace");
  declare_run_options(line);
  if (!line.parse(arguments)) return std::nullopt;
  Request request;
  static_cast<RunOptions&>(request) = read_run_options(line);
  request.model = line.text("MODEL");
  std::optional<std::string> component = line.text("component");
  if (!component) throw UsageError("--component is missing");
  request.component = *component;
  request.sizes.height = request.sizes.width = line.integer("size", 1, 1 << 16).value_or(512);
  request.sizes.batch = line.integer("batch", 1, 1 << 10).value_or(1);
  request.sizes.text_tokens = line.integer("text-tokens", 1, 1 << 16);
  request.repeat = line.small_integer("repeat", 1, 1000000).value_or(3);
  if (auto trace = line.text("trace")) request.trace = *trace;
  return request;
}

template <typename F>
double seconds_of(F&& f) {
  auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The value has been computed.
void wait(const Tensor& tensor) { tensor.node()->buffers().front()->ready_event().await(); }

// Throws UsageError for what the command line asks of the component and it cannot do.
template <typename F>
auto asked(F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kInvalidArgument) throw UsageError(e.what());
    throw;
  }
}

Json bench(const Request& request) {
  MemorySampler memory;
  if (request.trace) check_writable(*request.trace);
  checkpoint::ModelFolder folder = open_model(request.model);
  Context::Options options;
  options.mode = request.mode;
  Context context(options);
  Where where(request, context);
  TracedMesh traced(context, context.mesh(where.device));
  traced.keep_events(request.trace.has_value());

  std::unique_ptr<pipelines::LoneComponent> lone;
  double load = seconds_of([&] {
    traced.event("load " + request.component, "component", [&] {
      lone = asked([&] { return pipelines::LoneComponent::load(folder, request.component); });
      lone->component().store->place(context, traced.mesh(), where.dtype);
    });
  });
  nn::Module& module = *lone->component().module;
  if (request.compile == Compile::kComponents) module.compile({.fullgraph = true});
  if (request.compile == Compile::kRepeatedBlocks)
    asked([&] { module.compile_repeated_blocks({.fullgraph = true}); });

  std::function<Tensor()> call = traced.event("input", "transfer", [&] {
    return asked([&] { return lone->call(request.sizes, context, traced.mesh(), where.dtype); });
  });
  auto once = [&] {
    check_interrupt();
    traced.event(request.component, "component", [&] {
      Tensor out = call();
      if (out.node()->state() == graph::Node::State::kPending) traced.evaluate(std::span(&out.node(), 1), {});
      wait(out);
    });
  };
  context.synchronise();
  double flops = traced.flops(), first = seconds_of(once);
  flops = traced.flops() - flops;
  std::vector<double> seconds;
  for (int i = 0; i < request.repeat; ++i) seconds.push_back(seconds_of(once));
  std::ranges::sort(seconds);
  if (request.trace) write_chrome_trace(*request.trace, traced.events());

  Statistics statistics = context.statistics();
  return {{"model", folder.path().string()},
          {"component", request.component},
          {"class", lone->class_name()},
          {"size", request.sizes.height},
          {"batch", request.sizes.batch},
          {"dtype", dtype_name(where.dtype)},
          {"device", device_text(where.device)},
          {"mode", mode_text(request)},
          {"repeat", request.repeat},
          {"seconds", seconds.front()},
          {"median_seconds", seconds[seconds.size() / 2]},
          {"first_seconds", first},
          {"load_seconds", load},
          {"compile_seconds", statistics.compile_seconds},
          {"compiles", statistics.compiles},
          {"disk_hits", statistics.disk_hits},
          {"gflops_per_second", flops / seconds.front() / 1e9},
          {"weight_bytes", lone->component().store->bytes()},
          {"peak_bytes", context.memory(*traced.mesh()).peak()},
          {"rss_anon_bytes", memory.peak_bytes()}};
}

}  // namespace

int run_bench(const std::vector<std::string>& arguments) {
  std::optional<Request> request = parse(arguments);
  if (!request) return 0;
  catch_interrupts();
  print_json(bench(*request));
  return 0;
}

}  // namespace tessera::cli
