#include <fmt/core.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "tessera/base/error.h"
#include "tessera/base/quote.h"
#include "tessera/cli/command_line.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/console.h"
#include "tessera/cli/generate_options.h"
#include "tessera/cli/interrupt.h"
#include "tessera/cli/memory_sampler.h"
#include "tessera/cli/output_names.h"
#include "tessera/cli/shared.h"
#include "tessera/comm/process_group.h"
#include "tessera/image/png.h"
#include "tessera/pipelines/arguments.h"
#include "tessera/pipelines/text_to_image.h"
#include "tessera/text/unicode.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Shows on a terminal how far the run is, and stops it where the user asked for that.
class Watch {
 public:
  explicit Watch(const GenerateRequest& request) : request_(request) {}

  pipelines::Hooks hooks(pipelines::Trace* trace) {
    pipelines::Hooks out;
    out.on_stage = [this](std::string_view stage) { begin(stage); };
    out.on_step = [this](const pipelines::Step& step) { return show(step); };
    out.trace = trace;
    return out;
  }

 private:
  void begin(std::string_view stage) {
    check_interrupt();
    // By now the arguments have been found good.
    if (stage == "encode" && request_.seed_drawn) {
      console::note(fmt::format("seed: {}", request_.arguments.seeds[0]));
    }
    stage_start_ = now();
    console::progress(fmt::format("{} ...", stage));
  }

  bool show(const pipelines::Step& step) {
    check_interrupt();
    double per_step = (now() - stage_start_) / (step.index + 1);
    auto left = static_cast<int>(std::lround(per_step * (step.count - step.index - 1)));
    console::progress(fmt::format("step {}/{}  {:.2f} s/step  {}:{:02} left", step.index + 1, step.count,
                                  per_step, left / 60, left % 60));
    return true;
  }

  const GenerateRequest& request_;
  double stage_start_ = 0;
};

// Everything that can be known to fail before work begins.
void check_outputs(const GenerateRequest& request) {
  for (const fs::path& file : request.files) check_writable(file);
  if (request.dump) {
    check_folder(*request.dump);
    if (fs::is_directory(*request.dump)) check_writable(*request.dump / "trace.safetensors");
  }
}

std::string model_name(const GenerateRequest& request, const checkpoint::ModelFolder& folder) {
  // Not the whole path: it would tell where the maker keeps files.
  if (request.model && !fs::exists(*request.model)) return *request.model;
  std::string name = fs::weakly_canonical(folder.path()).filename().string();
  return text::is_utf8(name) ? name : quote(name);  // it goes into the picture's text, which is UTF-8
}

// The text of prompt number `i` in a list that may hold one for all.
const std::string& text_for(const std::vector<std::string>& texts, std::size_t i) {
  return texts.size() == 1 ? texts[0] : texts.at(i);
}

image::TextChunks metadata(const GenerateRequest& request, const Where& where, const std::string& model,
                           std::string_view pipeline, const pipelines::Result& result, std::size_t image) {
  const pipelines::Arguments& a = request.arguments;
  std::size_t prompt = image / static_cast<std::size_t>(a.num_images_per_prompt);
  image::TextChunks text{{"Software", "Tessera " TESSERA_VERSION}};
  auto add_texts = [&](const char* name, const std::optional<std::vector<std::string>>& texts) {
    if (texts && !texts->empty()) text.emplace_back(name, text_for(*texts, prompt));
  };
  add_texts("prompt", a.prompt);
  add_texts("prompt_2", a.prompt_2);
  add_texts("prompt_3", a.prompt_3);
  add_texts("negative_prompt", a.negative_prompt);
  add_texts("negative_prompt_2", a.negative_prompt_2);
  add_texts("negative_prompt_3", a.negative_prompt_3);
  text.emplace_back("seed", fmt::format("{}", a.seeds.size() == 1 ? a.seeds[0] : a.seeds.at(image)));
  if (request.images() > 1) {
    // One seed draws the noise of the whole batch, so the place in it counts.
    text.emplace_back("image", fmt::format("{} of {}", image + 1, request.images()));
  }
  text.emplace_back("model", model);
  text.emplace_back("pipeline", pipeline);
  text.emplace_back("height", fmt::format("{}", result.height));
  text.emplace_back("width", fmt::format("{}", result.width));
  text.insert(text.end(), result.settings.begin(), result.settings.end());
  text.emplace_back("dtype", dtype_name(where.dtype));
  text.emplace_back("device", device_text(where.device));
  return text;
}

void write_trace(const fs::path& folder, const pipelines::Trace& trace) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(ErrorCode::kUnavailable, "{}: cannot be made: {}", folder.string(), error.message());
  trace.write(folder / "trace.safetensors");
}

std::string_view offload_text(pipelines::Offload offload) {
  return offload == pipelines::Offload::kModel   ? "model"
         : offload == pipelines::Offload::kGroup ? "group"
                                                 : "none";
}

Json report(const GenerateRequest& request, const Where& where, const checkpoint::ModelFolder& folder,
            Context& context, const pipelines::TextToImage& pipeline, const pipelines::Result& result,
            const std::map<std::string, double>& seconds, std::int64_t rss_anon_peak) {
  Statistics statistics = context.statistics();
  Json out;
  out["model"] = folder.path().string();
  out["pipeline"] = pipeline.class_name();
  out["seeds"] = request.arguments.seeds;
  out["height"] = result.height;
  out["width"] = result.width;
  out["num_inference_steps"] = result.num_inference_steps;
  out["dtype"] = dtype_name(where.dtype);
  out["device"] = device_text(where.device);
  out["mode"] = mode_text(request);
  out["offload"] = offload_text(request.offload);
  out["seconds"] = seconds;
  auto denoise = result.seconds.find("denoise");
  out["seconds_per_step"] = denoise == result.seconds.end() || result.num_inference_steps == 0
                                ? 0.0
                                : denoise->second / result.num_inference_steps;
  out["compiles"] = statistics.compiles;
  out["compile_seconds"] = statistics.compile_seconds;
  out["cache_hits"] = statistics.cache_hits;
  out["disk_hits"] = statistics.disk_hits;
  out["programs"] = statistics.programs;
  out["host_transfers_in_loop"] = result.host_transfers_in_loop;
  out["operations"] = statistics.operations;
  out["weight_bytes"] = pipeline.weight_bytes();
  out["bytes_read"] = pipeline.bytes_read();
  const graph::Mesh& mesh = *pipeline.mesh();
  out["tensor_parallel"] = mesh.ranks();
  out["processes"] = request.place ? request.place->world_size : 1;
  for (int i = 0; i < mesh.size(); ++i) {
    DeviceName device{mesh.device, mesh.devices[static_cast<std::size_t>(i)]};
    out["peak_bytes"][device_text(device)] = context.memory(mesh, i).peak();
  }
  out["rss_anon_peak_bytes"] = rss_anon_peak;
  out["files"] = Json::array();
  for (const fs::path& file : request.files) out["files"].push_back(file.string());
  return out;
}

// What is wrong with the arguments of the call is wrong with the command line.
pipelines::Result call(const pipelines::TextToImage& pipeline, const pipelines::Arguments& arguments,
                       const pipelines::Hooks& hooks) {
  try {
    return pipeline.generate(arguments, hooks);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kInvalidArgument) throw UsageError(about_option(e.what()));
    throw;
  }
}

std::string closing_line(const GenerateRequest& request, const pipelines::Result& result, double seconds) {
  const std::vector<fs::path>& files = request.files;
  std::string names = files.size() == 1 ? files[0].string()
                                        : fmt::format("{} pictures, {} to {}", files.size(),
                                                      files.front().string(), files.back().string());
  return fmt::format("wrote {} ({} x {}) in {:.1f} s", names, result.width, result.height, seconds);
}

// Moves the models where they are to be and compiles what is to be compiled.
void prepare(const GenerateRequest& request, const Where& where, pipelines::TextToImage& pipeline) {
  if (request.offload == pipelines::Offload::kModel) {
    pipeline.enable_model_cpu_offload(where.device);
  } else if (request.offload == pipelines::Offload::kGroup) {
    pipeline.enable_group_offload(where.device);
  } else if (!request.tensor_parallel) {
    pipeline.to(where.device);
  }
  if (request.compile == Compile::kComponents) {
    for (pipelines::Component* component : pipeline.components())
      component->module->compile({.fullgraph = true});
  } else if (request.compile == Compile::kRepeatedBlocks) {
    pipeline.module("transformer").compile_repeated_blocks({.fullgraph = true});
  }
}

// The devices of tensor parallel: all in this process, or one here and the others in the processes of the
// group.
graph::MeshPtr mesh_for(const GenerateRequest& request, const std::string& device, Context& context) {
  if (request.place) return context.mesh({device, 0}, *comm::ProcessGroup::joined());
  std::vector<DeviceName> devices;
  for (int i = 0; i < *request.tensor_parallel; ++i) devices.push_back({device, i});
  return context.mesh(devices);
}

// Meets the other processes. Before the plugin is loaded, which may have to know of them.
void join(GenerateRequest& request) {
  if (!request.device)
    request.device = DeviceName{pjrt::PluginRegistry().promising("tpu") ? "tpu" : "cpu", 0};
  comm::ProcessGroup::join(*request.place, request.device->name);
}

pipelines::LoadOptions load_options(const GenerateRequest& request, const Where& where, Context& context) {
  pipelines::LoadOptions out{.dtype = where.dtype};
  if (!request.tensor_parallel) return out;
  out.tensor_parallel = {.mesh = mesh_for(request, where.device.name, context),
                         .replicate = request.replicate,
                         .vae_on_one_device = request.vae_on_one_device};
  return out;
}

void generate(GenerateRequest& request) {
  double start = now();
  MemorySampler memory;
  if (request.writes()) check_outputs(request);
  checkpoint::ModelFolder folder = open_model(request.model);
  if (auto lacking = pipelines::lacking_argument(folder.pipeline_class(), request.arguments)) {
    throw UsageError(
        fmt::format("{} is no option of the checkpoint's {}", option_for(*lacking), folder.pipeline_class()));
  }

  Context::Options options;
  options.mode = request.mode;
  if (request.place) join(request);
  if (request.tensor_parallel) {
    std::int64_t here = request.place ? 1 : *request.tensor_parallel;
    options.client_options = {{"cpu_device_count", here}};
  }
  Context context(options);
  Where where(request, context);
  pipelines::Trace trace;
  Watch watch(request);
  pipelines::Hooks hooks = watch.hooks(request.dump ? &trace : nullptr);
  std::unique_ptr<pipelines::TextToImage> pipeline =
      pipelines::load_pipeline(folder, context, load_options(request, where, context), hooks);
  prepare(request, where, *pipeline);
  double loaded = now();
  pipelines::Result result = call(*pipeline, request.arguments, hooks);
  check_internal(result.images.size() == request.images(), "the pipeline gave another number of pictures");
  console::clear_progress();

  double drawn = now();
  check_interrupt();
  if (!request.writes()) return;
  if (request.dump) write_trace(*request.dump, trace);
  std::string model = model_name(request, folder);
  for (std::size_t i = 0; i < request.images(); ++i) {
    image::write_png(request.files[i], result.images[i],
                     metadata(request, where, model, pipeline->class_name(), result, i));
  }
  double end = now();
  std::map<std::string, double> seconds = result.seconds;
  seconds["load"] = loaded - start;
  seconds["write"] = end - drawn;
  seconds["total"] = end - start;
  if (request.json) {
    print_json(report(request, where, folder, context, *pipeline, result, seconds, memory.peak_bytes()));
  }
  console::note(closing_line(request, result, end - start));
}

}  // namespace

int run_generate(const std::vector<std::string>& arguments) {
  std::optional<GenerateRequest> request = parse_generate(arguments);
  if (!request) return 0;
  catch_interrupts();
  try {
    generate(*request);
    if (const comm::ProcessGroup* group = comm::ProcessGroup::joined()) group->leave(0);
  } catch (...) {
    console::clear_progress();
    throw;
  }
  return 0;
}

}  // namespace tessera::cli
