#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "tessera/base/error.h"
#include "tessera/base/quote.h"
#include "tessera/cli/common.h"
#include "tessera/cli/memory_watch.h"
#include "tessera/cli/output_pattern.h"
#include "tessera/cli/progress.h"
#include "tessera/pipelines/text_to_image.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// What the command line says, before it is made into arguments of a pipeline.
struct Options {
  std::string model, output = "out.png", device = "cpu", dtype, mode = "eager", offload = "none", dump;
  std::vector<std::string> prompt, prompt_2, prompt_3, negative_prompt, seeds;
  std::optional<std::int64_t> height, width;
  std::optional<int> steps, max_sequence_length, clip_skip;
  std::vector<double> sigmas;
  std::optional<double> guidance_scale, true_cfg_scale, skip_scale, skip_start, skip_stop;
  std::vector<int> skip_layers, out_layers;
  int images_per_prompt = 1, tensor_parallel = 1;
  bool json = false;
};

// Options that exist for all versions and have one value in this one.
void refuse_what_is_not_there(const Options& o) {
  auto refuse = [](std::string_view option, std::string_view value, std::string_view there) {
    throw UsageError(
        fmt::format("{} {} is not available in this version; available: {}", option, value, there));
  };
  if (o.mode != "eager") refuse("--mode", o.mode, "eager");
  if (o.offload != "none") refuse("--offload", o.offload, "none");
  if (o.tensor_parallel != 1) refuse("--tensor-parallel", std::to_string(o.tensor_parallel), "1");
}

DType read_dtype(const Options& o, const DeviceName& device) {
  if (o.dtype.empty()) return device.name == "cpu" ? DType::kF32 : DType::kBF16;
  if (o.dtype == "f16") {
    throw UsageError("--dtype f16 is not computed in: f16 files are read and converted; use bf16 or f32");
  }
  std::optional<DType> dtype = dtype_from_name(o.dtype);
  if (dtype != DType::kF32 && dtype != DType::kBF16) {
    throw UsageError(fmt::format("--dtype {}: it is bf16 or f32", quote(o.dtype)));
  }
  return *dtype;
}

// The seeds given, or one that is drawn.
std::vector<std::uint64_t> read_seeds(const Options& o) {
  if (o.seeds.empty()) return {std::random_device()()};
  std::vector<std::uint64_t> out;
  for (const std::string& text : o.seeds) {
    std::uint64_t seed = 0;
    auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), seed);
    if (code != std::errc() || end != text.data() + text.size() || text.empty()) {
      throw UsageError(fmt::format("--seed {}: a whole number from 0 to 2^64 - 1 is wanted", quote(text)));
    }
    out.push_back(seed);
  }
  return out;
}

template <typename T>
std::optional<std::vector<T>> if_given(const std::vector<T>& values) {
  return values.empty() ? std::nullopt : std::optional(values);
}

pipelines::Arguments make_arguments(const Options& o, std::vector<std::uint64_t> seeds) {
  pipelines::Arguments a;
  a.prompt = o.prompt;
  a.prompt_2 = if_given(o.prompt_2);
  a.prompt_3 = if_given(o.prompt_3);
  a.negative_prompt = if_given(o.negative_prompt);
  a.height = o.height;
  a.width = o.width;
  a.num_inference_steps = o.steps;
  a.sigmas = if_given(o.sigmas);
  a.guidance_scale = o.guidance_scale;
  a.true_cfg_scale = o.true_cfg_scale;
  a.max_sequence_length = o.max_sequence_length;
  a.clip_skip = o.clip_skip;
  a.skip_guidance_layers = if_given(o.skip_layers);
  a.skip_layer_guidance_scale = o.skip_scale;
  a.skip_layer_guidance_start = o.skip_start;
  a.skip_layer_guidance_stop = o.skip_stop;
  a.text_encoder_out_layers = if_given(o.out_layers);
  a.num_images_per_prompt = o.images_per_prompt;
  a.seeds = std::move(seeds);
  return a;
}

// Finds out before the work whether its result can be kept.
void check_writable(const fs::path& file) {
  fs::path folder = file.parent_path().empty() ? fs::path(".") : file.parent_path();
  if (!fs::is_directory(folder)) {
    fail(ErrorCode::kNotFound, "-o {}: there is no folder {}", file.string(), folder.string());
  }
  if (fs::is_directory(file)) fail(ErrorCode::kInvalidArgument, "-o {}: it is a folder", file.string());
  if (access(folder.c_str(), W_OK) != 0 && !fs::exists(file)) {
    fail(ErrorCode::kUnavailable, "-o {}: the folder {} cannot be written", file.string(), folder.string());
  }
}

image::TextChunks metadata(const Options& o, const checkpoint::ModelFolder& folder,
                           const pipelines::Arguments& a, const pipelines::Result& result, DType dtype,
                           int index) {
  auto prompt = static_cast<std::size_t>(index / o.images_per_prompt);
  auto of = [prompt](const std::vector<std::string>& texts) { return texts[texts.size() == 1 ? 0 : prompt]; };
  image::TextChunks text{{"prompt", of(a.prompt)}};
  if (a.prompt_2) text.emplace_back("prompt_2", of(*a.prompt_2));
  if (a.negative_prompt) text.emplace_back("negative_prompt", of(*a.negative_prompt));
  // With one seed for several images, the image's place in the batch is part of what made it.
  std::size_t i = static_cast<std::size_t>(index);
  text.emplace_back("seed", std::to_string(a.seeds[a.seeds.size() == 1 ? 0 : i]));
  if (a.seeds.size() == 1 && result.images.size() > 1) {
    text.emplace_back("image", fmt::format("{} of {}", index + 1, result.images.size()));
  }
  text.emplace_back("model", folder.path().string());
  text.emplace_back("pipeline", folder.pipeline_class());
  text.emplace_back("size", fmt::format("{}x{}", result.width, result.height));
  for (const auto& [name, value] : result.settings) text.emplace_back(name, value);
  text.emplace_back("dtype", dtype_name(dtype));
  text.emplace_back("device", o.device);
  text.emplace_back("Software", std::string("Tessera ") + TESSERA_VERSION);
  return text;
}

void print_report(const checkpoint::ModelFolder& folder, const pipelines::Arguments& a,
                  const pipelines::Result& result, const Context& context, const graph::Mesh& mesh,
                  std::int64_t rss_peak, std::int64_t weight_bytes, const std::vector<fs::path>& files) {
  Statistics s = context.statistics();
  json out;
  out["model"] = folder.path().string();
  out["pipeline"] = folder.pipeline_class();
  out["seeds"] = a.seeds;
  out["height"] = result.height;
  out["width"] = result.width;
  out["seconds"] = result.seconds;
  auto denoise = result.seconds.find("denoise");
  out["seconds_per_step"] =
      denoise == result.seconds.end() ? 0.0 : denoise->second / result.num_inference_steps;
  out["compiles"] = s.compiles;
  out["compile_seconds"] = s.compile_seconds;
  out["cache_hits"] = s.cache_hits;
  out["disk_hits"] = s.disk_hits;
  out["programs"] = s.programs;
  out["host_transfers_in_loop"] = result.host_transfers_in_loop;
  out["operations"] = s.operations;
  out["peak_bytes"] =
      json::object({{fmt::format("{}:{}", mesh.device, mesh.devices[0]), context.memory(mesh).peak()}});
  out["weight_bytes"] = weight_bytes;
  out["rss_anon_peak_bytes"] = rss_peak;
  out["files"] = json::array();
  for (const fs::path& file : files) out["files"].push_back(file.string());
  print_json(out);
}

void generate(const Options& o) {
  refuse_what_is_not_there(o);
  if (o.prompt.empty()) throw UsageError("generate: a prompt is wanted (-p TEXT)");
  if (o.images_per_prompt < 1) throw UsageError("--images-per-prompt must be 1 or more");
  DeviceName device;
  try {
    device = DeviceName::parse(o.device);
  } catch (const Error& e) {
    throw UsageError(fmt::format("--device: {}", e.what()));
  }
  DType dtype = read_dtype(o, device);
  OutputPattern pattern(o.output);
  pipelines::Arguments arguments = make_arguments(o, read_seeds(o));
  int count = static_cast<int>(o.prompt.size()) * o.images_per_prompt;
  for (int i = 0; i < count; ++i) check_writable(pattern.path(i, count));
  checkpoint::ModelFolder folder = open_model(o.model);
  if (o.seeds.empty()) note(fmt::format("seed: {}", arguments.seeds[0]));

  MemoryWatch memory;
  Progress progress;
  pipelines::Trace trace;
  pipelines::Hooks hooks;
  hooks.on_stage = [&](std::string_view stage) { progress.stage(stage); };
  hooks.on_step = [&](const pipelines::Step& step) {
    progress.step(step.index + 1, step.count);
    return true;
  };
  if (!o.dump.empty()) hooks.trace = &trace;

  auto start = std::chrono::steady_clock::now();
  auto since_start = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  Context context;
  auto pipeline = pipelines::load_pipeline(folder, context, {.device = device, .dtype = dtype}, hooks);
  double load_seconds = since_start();
  pipelines::Result result = pipeline->generate(arguments, hooks);
  result.seconds["load"] = load_seconds;
  progress.clear();

  std::vector<fs::path> files;
  for (int i = 0; i < count; ++i) {
    fs::path file = pattern.path(i, count);
    image::write_png(file, result.images[static_cast<std::size_t>(i)],
                     metadata(o, folder, arguments, result, dtype, i));
    files.push_back(file);
  }
  if (!o.dump.empty()) {
    std::error_code failed;
    fs::create_directories(o.dump, failed);
    if (failed) fail(ErrorCode::kUnavailable, "--dump {}: {}", o.dump, failed.message());
    trace.write(fs::path(o.dump) / "trace.safetensors");
  }
  for (const fs::path& file : files) {
    note(fmt::format("{}: {} x {}, {} step(s), {:.1f} s", file.string(), result.width, result.height,
                     result.num_inference_steps, since_start()));
  }
  if (o.json) {
    graph::MeshPtr mesh = context.mesh(device);
    print_report(folder, arguments, result, context, *mesh, memory.peak(), pipeline->weight_bytes(), files);
  }
}

}  // namespace

void add_generate(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* sub = app.add_subcommand("generate", "Draw pictures from a prompt");
  sub->add_option("model", o.model,
                  "Diffusers folder, or Hub id in the local cache (default: the demonstration model)");
  // One value each time, so that a prompt may be empty or begin with a dash.
  auto texts = [&](const std::string& name, std::vector<std::string>& value, const std::string& help) {
    sub->add_option(name, value, help)->allow_extra_args(false)->type_name("TEXT");
  };
  texts("-p,--prompt", o.prompt, "What to draw; repeat for a batch");
  texts("--prompt-2", o.prompt_2, "For the second text encoder (default: the prompt)");
  texts("--prompt-3", o.prompt_3, "For the third text encoder (default: the prompt)");
  texts("-n,--negative-prompt", o.negative_prompt, "What not to draw; repeat for a batch");
  sub->add_option("--height", o.height, "Pixels");
  sub->add_option("--width", o.width, "Pixels");
  sub->add_option("--steps", o.steps, "Denoising steps");
  sub->add_option("--sigmas", o.sigmas, "Noise levels a,b,c instead of the schedule's own")->delimiter(',');
  sub->add_option("--guidance-scale", o.guidance_scale, "Guidance");
  sub->add_option("--true-cfg-scale", o.true_cfg_scale,
                  "Classifier-free guidance with the negative prompt, above 1");
  texts("--seed", o.seeds, "Once for the whole batch, or once for each image (default: drawn and shown)");
  sub->add_option("--images-per-prompt", o.images_per_prompt, "Pictures for each prompt");
  sub->add_option("--max-sequence-length", o.max_sequence_length, "Tokens of the long text encoder");
  sub->add_option("--clip-skip", o.clip_skip, "Layers of CLIP to leave out");
  sub->add_option("--skip-guidance-layers", o.skip_layers, "Layers a,b,c for skip-layer guidance")
      ->delimiter(',');
  sub->add_option("--skip-layer-guidance-scale", o.skip_scale, "Its scale");
  sub->add_option("--skip-layer-guidance-start", o.skip_start, "Where it starts, as a part of the steps");
  sub->add_option("--skip-layer-guidance-stop", o.skip_stop, "Where it stops");
  sub->add_option("--text-encoder-out-layers", o.out_layers, "Hidden states a,b,c to use")->delimiter(',');
  sub->add_option("--device", o.device, "cpu, tpu or cuda, with an index as in tpu:1");
  sub->add_option("--dtype", o.dtype, "f32 or bf16 (default: f32 on cpu, bf16 elsewhere)");
  sub->add_option("--mode", o.mode, "Execution mode: eager");
  sub->add_option("--offload", o.offload, "Offloading: none");
  sub->add_option("--tensor-parallel", o.tensor_parallel, "Devices to share the model between: 1");
  sub->add_option("-o,--output", o.output, "PNG file; %d is the number of the image")->capture_default_str();
  sub->add_option("--dump", o.dump, "Folder for trace.safetensors, the tensors of the run");
  sub->add_flag("--json", o.json, "Print a report on standard output");
  sub->callback([options] { generate(*options); });
}

}  // namespace tessera::cli
