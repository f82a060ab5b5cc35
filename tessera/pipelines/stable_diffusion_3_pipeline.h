#pragma once

#include <memory>

#include "tessera/pipelines/text_to_image.h"

namespace tessera::pipelines {

// Stable Diffusion 3 and 3.5 (Diffusers' StableDiffusion3Pipeline): two CLIP text models and T5 for the
// prompt, the pooled CLIP embeddings, a transformer over 2x2 patches of the latents, flow matching, and the
// 16-channel autoencoder. A text encoder that model_index.json does not name counts as zeros.
class StableDiffusion3Pipeline : public TextToImage {
 public:
  // Reads and checks every component, then moves them to options.device if it is given. Throws what is
  // missing or does not fit together, before anything is moved.
  static std::unique_ptr<StableDiffusion3Pipeline> from_pretrained(const checkpoint::ModelFolder& folder,
                                                                   Context& context,
                                                                   const LoadOptions& options = {},
                                                                   const Hooks& hooks = {});
  ~StableDiffusion3Pipeline() override;

  std::string_view class_name() const override { return "StableDiffusion3Pipeline"; }
  // Takes prompt, prompt_2, prompt_3 and their negatives (empty texts if not given; used when guidance_scale
  // is above 1, in one batch of twice the size), height and width (multiples of 16; anything else is
  // refused), num_inference_steps, sigmas, guidance_scale, clip_skip (of the prompts, not of the negatives),
  // skip_guidance_layers with its scale, start and stop, max_sequence_length (at most 512),
  // num_images_per_prompt, seeds and latents ([images, 16, height / 8, width / 8]). Defaults: the size that
  // the transformer was trained for (1024 x 1024), 28 steps, guidance 7, sequence 256, skip-layer guidance of
  // 2.8 from 0.01 to 0.2 of the steps.
  Result generate(const Arguments& arguments, const Hooks& hooks = {}) const override;

 private:
  struct Parts;
  StableDiffusion3Pipeline(Context& context, DType dtype);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tessera::pipelines
