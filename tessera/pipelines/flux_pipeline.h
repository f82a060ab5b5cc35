#pragma once

#include <memory>

#include "tessera/pipelines/text_to_image.h"

namespace tessera::pipelines {

// FLUX.1 (Diffusers' FluxPipeline): a CLIP text model for the pooled embedding, T5 for the prompt, a
// transformer over packed 2x2 latents, flow matching, and the 16-channel autoencoder.
class FluxPipeline : public TextToImage {
 public:
  // Reads and checks every component, then moves them to options.device if it is given. Throws what is
  // missing or does not fit, before anything is moved.
  static std::unique_ptr<FluxPipeline> from_pretrained(const checkpoint::ModelFolder& folder,
                                                       Context& context, const LoadOptions& options = {},
                                                       const Hooks& hooks = {});
  ~FluxPipeline() override;

  std::string_view class_name() const override { return "FluxPipeline"; }
  // Takes prompt, prompt_2, negative_prompt, negative_prompt_2 (used when true_cfg_scale > 1), height, width
  // (rounded down to multiples of 16), num_inference_steps, sigmas, guidance_scale (ignored, with a warning,
  // by a model without a guidance input), true_cfg_scale, max_sequence_length (at most 512),
  // num_images_per_prompt, seeds and latents (packed, [images, height / 16 * width / 16, 64]). Defaults: 1024
  // x 1024, 28 steps, guidance 3.5, true_cfg_scale 1, sequence 512.
  Result generate(const Arguments& arguments, const Hooks& hooks = {}) const override;

 private:
  struct Parts;
  FluxPipeline(Context& context, DType dtype);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tessera::pipelines
