#include "tessera/pipelines/stable_diffusion_3_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/pipelines/arguments.h"
#include "tessera/pipelines/batch.h"

namespace tessera::pipelines {
namespace {

void check_size(const Sd3Plan& plan, const Sd3Limits& limits) {
  std::int64_t multiple = limits.multiple(), most = multiple * limits.pos_embed_max_size;
  if (plan.height % multiple != 0 || plan.width % multiple != 0) {
    auto nearest = [&](std::int64_t side) { return std::max(multiple, side - side % multiple); };
    invalid_argument("{} x {} (width x height) is not divisible by {}; {} x {} is", plan.width, plan.height,
                     multiple, nearest(plan.width), nearest(plan.height));
  }
  if (plan.height > most || plan.width > most) {
    invalid_argument("{} x {} (width x height): this model takes sides of up to {}", plan.width, plan.height,
                     most);
  }
}

void plan_texts(const Arguments& a, Sd3Plan& plan) {
  plan.prompt = {a.prompt, prompts_for(a.prompt_2, a.prompt, plan.prompts, "prompt_2"),
                 prompts_for(a.prompt_3, a.prompt, plan.prompts, "prompt_3")};
  std::vector<std::string> empty(plan.prompts);
  std::vector<std::string> first = prompts_for(a.negative_prompt, empty, plan.prompts, "negative_prompt");
  plan.negative_prompt = {first, prompts_for(a.negative_prompt_2, first, plan.prompts, "negative_prompt_2"),
                          prompts_for(a.negative_prompt_3, first, plan.prompts, "negative_prompt_3")};
  if (!plan.guided && (a.negative_prompt || a.negative_prompt_2 || a.negative_prompt_3)) {
    log(LogLevel::kWarning, "the negative prompt is ignored: it needs a guidance_scale above 1");
  }
}

void plan_skip_layers(const Arguments& a, const Sd3Limits& limits, Sd3Plan& plan) {
  SkipLayerGuidance& skip = plan.skip_layers;
  auto set = [&](const char* name, const std::optional<double>& given, double& value) {
    if (!given) return;
    if (!a.skip_guidance_layers) {
      invalid_argument("{} was given without skip_guidance_layers", name);
    }
    check_finite(name, *given);
    value = *given;
  };
  set("skip_layer_guidance_scale", a.skip_layer_guidance_scale, skip.scale);
  set("skip_layer_guidance_start", a.skip_layer_guidance_start, skip.start);
  set("skip_layer_guidance_stop", a.skip_layer_guidance_stop, skip.stop);
  if (!a.skip_guidance_layers) return;
  for (int layer : *a.skip_guidance_layers) {
    if (layer < 0 || layer >= limits.num_layers) {
      invalid_argument("skip_guidance_layers: there is no block {}; the transformer has blocks 0 to {}",
                       layer, limits.num_layers - 1);
    }
  }
  if (skip.start > skip.stop) {
    invalid_argument("skip_layer_guidance_start {} is after skip_layer_guidance_stop {}", skip.start,
                     skip.stop);
  }
  if (!plan.guided) {
    log(LogLevel::kWarning, "skip_guidance_layers are ignored: they need a guidance_scale above 1");
    return;
  }
  skip.layers = *a.skip_guidance_layers;
}

}  // namespace

Sd3Plan sd3_plan(const Arguments& a, const checkpoint::ModelFolder& folder, const Sd3Limits& limits) {
  refuse_lacking_arguments("StableDiffusion3Pipeline", a);
  std::int64_t side = limits.sample_size * limits.vae_scale_factor;
  CallDefaults defaults{.height = side,
                        .width = side,
                        .num_inference_steps = 28,
                        .max_sequence_length = 256,
                        .longest_sequence_length = 512};
  Sd3Plan plan;
  static_cast<CommonPlan&>(plan) = common_plan(a, folder, defaults);
  check_size(plan, limits);
  plan.latent_height = plan.height / limits.vae_scale_factor;
  plan.latent_width = plan.width / limits.vae_scale_factor;
  plan.guidance_scale = number_or_default(a.guidance_scale, folder, "guidance_scale", 7.0);
  check_finite("guidance_scale", plan.guidance_scale);
  plan.guided = plan.guidance_scale > 1;
  plan_texts(a, plan);
  plan_skip_layers(a, limits, plan);
  if (a.clip_skip) {
    // The state that is read is the one before the last, and clip_skip further down.
    if (limits.clip_hidden_states == 0) invalid_argument("clip_skip: this checkpoint has no CLIP text model");
    check_range("clip_skip", *a.clip_skip, 0, limits.clip_hidden_states - 2);
    plan.clip_skip = *a.clip_skip;
  }
  return plan;
}

Settings sd3_settings(const Arguments& arguments, const Sd3Plan& plan) {
  Settings out = common_settings(arguments, plan);
  out.emplace_back("guidance_scale", fmt::format("{}", plan.guidance_scale));
  if (plan.clip_skip != 0) out.emplace_back("clip_skip", fmt::format("{}", plan.clip_skip));
  const SkipLayerGuidance& skip = plan.skip_layers;
  if (!skip.layers.empty()) {
    out.emplace_back("skip_guidance_layers", fmt::format("{}", fmt::join(skip.layers, ",")));
    out.emplace_back("skip_layer_guidance_scale", fmt::format("{}", skip.scale));
    out.emplace_back("skip_layer_guidance_start", fmt::format("{}", skip.start));
    out.emplace_back("skip_layer_guidance_stop", fmt::format("{}", skip.stop));
  }
  return out;
}

}  // namespace tessera::pipelines
