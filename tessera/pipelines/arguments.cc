#include "tessera/pipelines/arguments.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "tessera/base/error.h"

namespace tessera::pipelines {
namespace {

struct Argument {
  std::string_view name;
  bool (*given)(const Arguments& a);
};

// Those that not every pipeline has.
constexpr Argument kArguments[] = {
    {"prompt_2", [](const Arguments& a) { return a.prompt_2.has_value(); }},
    {"prompt_3", [](const Arguments& a) { return a.prompt_3.has_value(); }},
    {"negative_prompt", [](const Arguments& a) { return a.negative_prompt.has_value(); }},
    {"negative_prompt_2", [](const Arguments& a) { return a.negative_prompt_2.has_value(); }},
    {"negative_prompt_3", [](const Arguments& a) { return a.negative_prompt_3.has_value(); }},
    {"guidance_scale", [](const Arguments& a) { return a.guidance_scale.has_value(); }},
    {"true_cfg_scale", [](const Arguments& a) { return a.true_cfg_scale.has_value(); }},
    {"clip_skip", [](const Arguments& a) { return a.clip_skip.has_value(); }},
    {"skip_guidance_layers", [](const Arguments& a) { return a.skip_guidance_layers.has_value(); }},
    {"skip_layer_guidance_scale", [](const Arguments& a) { return a.skip_layer_guidance_scale.has_value(); }},
    {"skip_layer_guidance_start", [](const Arguments& a) { return a.skip_layer_guidance_start.has_value(); }},
    {"skip_layer_guidance_stop", [](const Arguments& a) { return a.skip_layer_guidance_stop.has_value(); }},
    {"text_encoder_out_layers", [](const Arguments& a) { return a.text_encoder_out_layers.has_value(); }},
    {"max_sequence_length", [](const Arguments& a) { return a.max_sequence_length.has_value(); }},
};

// Of kArguments, what each pipeline has. A new pipeline gets a line here.
constexpr std::string_view kFlux[] = {"prompt_2",       "negative_prompt", "negative_prompt_2",
                                      "guidance_scale", "true_cfg_scale",  "max_sequence_length"};
constexpr std::string_view kStableDiffusion3[] = {"prompt_2",
                                                  "prompt_3",
                                                  "negative_prompt",
                                                  "negative_prompt_2",
                                                  "negative_prompt_3",
                                                  "guidance_scale",
                                                  "clip_skip",
                                                  "skip_guidance_layers",
                                                  "skip_layer_guidance_scale",
                                                  "skip_layer_guidance_start",
                                                  "skip_layer_guidance_stop",
                                                  "max_sequence_length"};

constexpr std::string_view kFlux2[] = {"guidance_scale", "text_encoder_out_layers", "max_sequence_length"};

struct Pipeline {
  std::string_view class_name;
  std::span<const std::string_view> has;
};
constexpr Pipeline kPipelines[] = {{"FluxPipeline", kFlux},
                                   {"Flux2Pipeline", kFlux2},
                                   {"Flux2KleinPipeline", kFlux2},
                                   {"StableDiffusion3Pipeline", kStableDiffusion3}};

}  // namespace

std::optional<std::string_view> lacking_argument(std::string_view pipeline_class,
                                                 const Arguments& arguments) {
  const auto* pipeline = std::ranges::find(kPipelines, pipeline_class, &Pipeline::class_name);
  if (pipeline == std::end(kPipelines)) return std::nullopt;
  for (const Argument& argument : kArguments) {
    bool has = std::ranges::find(pipeline->has, argument.name) != pipeline->has.end();
    if (!has && argument.given(arguments)) return argument.name;
  }
  return std::nullopt;
}

void refuse_lacking_arguments(std::string_view pipeline_class, const Arguments& arguments) {
  if (auto name = lacking_argument(pipeline_class, arguments)) {
    invalid_argument("{} has no argument {}", pipeline_class, *name);
  }
}

}  // namespace tessera::pipelines
