#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "tessera/pipelines/call.h"

namespace tessera::pipelines {

// What a checkpoint of Stable Diffusion 3 allows of a call.
struct Sd3Limits {
  std::int64_t vae_scale_factor = 8, patch_size = 2, sample_size = 128, pos_embed_max_size = 96;
  std::int64_t num_layers = 0;          // of the transformer
  std::int64_t clip_hidden_states = 0;  // of the CLIP text model that has fewest; 0 without one

  std::int64_t multiple() const { return vae_scale_factor * patch_size; }
};

// Guidance away from what the transformer predicts without some of its blocks.
struct SkipLayerGuidance {
  std::vector<int> layers;  // none: off
  double scale = 2.8, start = 0.01, stop = 0.2;

  // As Diffusers decides it.
  bool applies(int step, int steps) const {
    return !layers.empty() && step > steps * start && step < steps * stop;
  }
};

// The arguments of a call with every default filled in and checked.
struct Sd3Plan : CommonPlan {
  using Texts = std::array<std::vector<std::string>, 3>;  // one a text encoder
  Texts prompt, negative_prompt;
  std::int64_t latent_height = 0, latent_width = 0;
  double guidance_scale = 7;
  bool guided = false;
  int clip_skip = 0;
  SkipLayerGuidance skip_layers;
};

// Throws kInvalidArgument, naming the argument.
Sd3Plan sd3_plan(const Arguments& arguments, const checkpoint::ModelFolder& folder, const Sd3Limits& limits);

// For metadata.
Settings sd3_settings(const Arguments& arguments, const Sd3Plan& plan);

}  // namespace tessera::pipelines
