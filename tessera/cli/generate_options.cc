#include "tessera/cli/generate_options.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string_view>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/quote.h"
#include "tessera/cli/command_line.h"
#include "tessera/cli/output_names.h"
#include "tessera/text/unicode.h"

namespace tessera::cli {
namespace {

constexpr std::int64_t kMaxSide = 65536;  // beyond this no pipeline will do; each has its own limit below it
constexpr int kMaxSteps = 100000;
constexpr int kMaxImages = 1024;
constexpr int kMaxRanks = 256;

constexpr const char* kExamples =
    "examples:\n"
    "  tessera generate -p \"a red apple\" --seed 7 -o apple.png\n"
    "  tessera generate FLUX.1-dev -p \"a cat\" -p \"a dog\" --steps 28 --dtype bf16 -o pet-%d.png\n"
    "  tessera generate -p \"a fox\" --images-per-prompt 4 --json -o fox.png\n";

void declare(CommandLine& line) {
  line.positional("MODEL",
                  "Diffusers folder, or Hub id in the local Hub cache (default: the demo checkpoint)");
  line.option("-p,--prompt", "TEXT", "what to draw; repeat for a batch", true);
  line.option("--prompt-2", "TEXT", "prompt of the second text encoder", true);
  line.option("--prompt-3", "TEXT", "prompt of the third text encoder", true);
  line.option("-n,--negative-prompt", "TEXT", "what not to draw; repeat for a batch", true);
  line.option("--negative-prompt-2", "TEXT", "the same for the second text encoder", true);
  line.option("--negative-prompt-3", "TEXT", "the same for the third text encoder", true);
  line.option("-o,--output", "FILE", "PNG to write; with %d for a picture's number");
  line.option("--height", "PIXELS", "height of the picture");
  line.option("--width", "PIXELS", "width of the picture");
  line.option("--steps", "N", "denoising steps");
  line.option("--sigmas", "A,B,C", "noise levels instead of the schedule's own, one a step");
  line.option("--guidance-scale", "X", "how closely to follow the prompt");
  line.option("--true-cfg-scale", "X", "classifier-free guidance against the negative prompt");
  line.option("--seed", "N",
              "one for the batch, or repeated, one for each picture (default: drawn and shown)", true);
  line.option("--images-per-prompt", "N", "pictures for each prompt");
  line.option("--max-sequence-length", "N", "tokens of the long prompt");
  line.option("--clip-skip", "N", "layers of CLIP to leave out");
  line.option("--skip-guidance-layers", "A,B,C", "blocks left out by skip-layer guidance");
  line.option("--skip-layer-guidance-scale", "X", "strength of skip-layer guidance");
  line.option("--skip-layer-guidance-start", "X", "part of the steps at which it starts");
  line.option("--skip-layer-guidance-stop", "X", "part of the steps at which it stops");
  line.option("--text-encoder-out-layers", "A,B,C", "layers of the text encoder to read");
  declare_run_options(line);
  line.option("--offload", "WHAT",
              "what to keep off the device while it is idle: none, model, group (of blocks)");
  line.option("--tensor-parallel", "N", "devices to split the model over");
  line.option("--replicate", "COMPONENT", "what every device is to keep whole, as in text_encoder_2", true);
  line.flag("--vae-on-one-device", "let the first device decode alone");
  line.option("--dump", "DIR", "write the tensors of the run to DIR/trace.safetensors");
  line.flag("--json", "print one JSON object about the run on standard output");
}

void check_texts(const CommandLine& line) {
  for (const char* name :
       {"prompt", "prompt-2", "prompt-3", "negative-prompt", "negative-prompt-2", "negative-prompt-3"}) {
    for (const std::string& text : line.values(name)) {
      try {
        text::check_utf8(text, fmt::format("--{}", name));
      } catch (const Error& e) {
        throw UsageError(e.what());
      }
    }
  }
}

// Short enough to type again.
std::uint64_t draw_seed() {
  std::random_device device;
  return std::uniform_int_distribution<std::uint64_t>(0, std::numeric_limits<std::uint32_t>::max())(device);
}

pipelines::Arguments arguments_of(const CommandLine& line) {
  pipelines::Arguments a;
  a.prompt = line.values("prompt");
  a.prompt_2 = line.optional_values("prompt-2");
  a.prompt_3 = line.optional_values("prompt-3");
  a.negative_prompt = line.optional_values("negative-prompt");
  a.negative_prompt_2 = line.optional_values("negative-prompt-2");
  a.negative_prompt_3 = line.optional_values("negative-prompt-3");
  a.height = line.integer("height", 1, kMaxSide);
  a.width = line.integer("width", 1, kMaxSide);
  a.num_inference_steps = line.small_integer("steps", 1, kMaxSteps);
  a.sigmas = line.numbers("sigmas");
  a.guidance_scale = line.number("guidance-scale");
  a.true_cfg_scale = line.number("true-cfg-scale");
  a.max_sequence_length = line.small_integer("max-sequence-length", 1, 1 << 20);
  a.clip_skip = line.small_integer("clip-skip", 0, 1 << 10);
  a.skip_guidance_layers = line.small_integers("skip-guidance-layers");
  a.skip_layer_guidance_scale = line.number("skip-layer-guidance-scale");
  a.skip_layer_guidance_start = line.number("skip-layer-guidance-start");
  a.skip_layer_guidance_stop = line.number("skip-layer-guidance-stop");
  a.text_encoder_out_layers = line.small_integers("text-encoder-out-layers");
  a.num_images_per_prompt = line.small_integer("images-per-prompt", 1, kMaxImages).value_or(1);
  a.seeds = line.seeds("seed");
  return a;
}

}  // namespace

std::string option_for(std::string_view argument) {
  if (argument == "num_inference_steps") return "--steps";
  if (argument == "num_images_per_prompt") return "--images-per-prompt";
  if (argument == "seeds") return "--seed";
  std::string out = fmt::format("--{}", argument);
  std::ranges::replace(out, '_', '-');
  return out;
}

std::string about_option(std::string_view message) {
  constexpr std::string_view kArguments[] = {"prompt",
                                             "prompt_2",
                                             "prompt_3",
                                             "negative_prompt",
                                             "negative_prompt_2",
                                             "sigmas",
                                             "guidance_scale",
                                             "true_cfg_scale",
                                             "num_inference_steps",
                                             "negative_prompt_3",
                                             "seeds",
                                             "height",
                                             "width",
                                             "max_sequence_length",
                                             "num_images_per_prompt",
                                             "clip_skip",
                                             "skip_guidance_layers",
                                             "skip_layer_guidance_scale",
                                             "skip_layer_guidance_start",
                                             "skip_layer_guidance_stop",
                                             "text_encoder_out_layers"};
  std::string_view first = message.substr(0, message.find_first_of(" :"));
  if (std::ranges::find(kArguments, first) == std::end(kArguments)) return std::string(message);
  return option_for(first) + std::string(message.substr(first.size()));
}

namespace {

void read_offload(const CommandLine& line, GenerateRequest& request) {
  std::optional<std::string> what = line.choice("offload", {"none", "model", "group"});
  if (what == "model") request.offload = pipelines::Offload::kModel;
  if (what != "group") return;
  request.offload = pipelines::Offload::kGroup;
  if (request.compile == Compile::kComponents) {
    throw UsageError(
        "--offload group and --mode compile do not go together: a program of a whole component needs all its "
        "weights "
        "at once; use --mode compile-blocks");
  }
}

// Several processes that were started together are the ranks of one model.
void read_place(GenerateRequest& request) {
  try {
    request.place = comm::launch_environment();
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
  if (request.place && request.place->world_size == 1) request.place.reset();
  if (!request.place) return;
  int processes = request.place->world_size;
  if (request.tensor_parallel && *request.tensor_parallel != processes) {
    throw UsageError(fmt::format("--tensor-parallel {}, but {} processes were started, which are a rank each",
                                 *request.tensor_parallel, processes));
  }
  request.tensor_parallel = processes;
}

void read_tensor_parallel(const CommandLine& line, GenerateRequest& request) {
  request.tensor_parallel = line.small_integer("tensor-parallel", 1, kMaxRanks);
  read_place(request);
  request.replicate = line.values("replicate");
  request.vae_on_one_device = line.given("vae-on-one-device");
  if (!request.tensor_parallel) {
    for (const char* option : {"replicate", "vae-on-one-device"}) {
      if (line.given(option)) throw UsageError(fmt::format("--{} needs --tensor-parallel", option));
    }
    return;
  }
  if (request.offload != pipelines::Offload::kNone) {
    throw UsageError(
        "--offload and tensor parallel do not go together: the devices hold their shares all the time");
  }
  if (request.device && request.device->index != 0) {
    throw UsageError(fmt::format("--device: the devices of tensor parallel are counted from 0; write {}",
                                 request.device->name));
  }
  if (!request.place) return;
  if (request.vae_on_one_device) {
    throw UsageError("--vae-on-one-device is for one process that has all devices; here each has one");
  }
  // Each process would draw its own.
  if (!line.given("seed")) {
    throw UsageError(fmt::format("--seed is missing: {} processes draw one picture, from the same noise",
                                 *request.tensor_parallel));
  }
}

}  // namespace

std::optional<GenerateRequest> parse_generate(const std::vector<std::string>& arguments) {
  CommandLine line("tessera generate", "Draws pictures from a prompt.", kExamples);
  declare(line);
  if (!line.parse(arguments)) return std::nullopt;
  if (!line.given("prompt")) throw UsageError("-p/--prompt is missing");
  if (!line.given("output")) throw UsageError("-o/--output is missing");
  check_texts(line);

  GenerateRequest request;
  request.model = line.text("MODEL");
  static_cast<RunOptions&>(request) = read_run_options(line);
  read_offload(line, request);
  read_tensor_parallel(line, request);
  request.arguments = arguments_of(line);
  request.json = line.given("json");
  if (auto dump = line.text("dump")) {
    if (dump->empty()) throw UsageError("--dump: the name of a folder is missing");
    request.dump = *dump;
  }
  pipelines::Arguments& a = request.arguments;
  std::size_t images = a.prompt.size() * static_cast<std::size_t>(a.num_images_per_prompt);
  if (a.seeds.empty()) {
    request.seed_drawn = true;
    a.seeds = {draw_seed()};
  } else if (a.seeds.size() != 1 && a.seeds.size() != images) {
    throw UsageError(fmt::format("--seed is given {} times for {} picture(s): give it once, or once for each",
                                 a.seeds.size(), images));
  }
  request.files = output_names(*line.text("output"), images);
  return request;
}

}  // namespace tessera::cli
