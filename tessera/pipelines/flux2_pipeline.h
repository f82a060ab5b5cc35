#pragma once

#include <memory>

#include "tessera/pipelines/text_to_image.h"

namespace tessera::pipelines {

// What differs between the pipelines of the FLUX.2 family.
struct Flux2Variant;

// FLUX.2: a language model whose hidden states are the prompt, a transformer over latents packed 2x2, flow
// matching with an empirical shift, and the 32-channel autoencoder with batch-normalised latents. The two
// pipelines below differ in the language model and in how they are guided.
class Flux2Family : public TextToImage {
 public:
  ~Flux2Family() override;
  std::string_view class_name() const override;
  Result generate(const Arguments& arguments, const Hooks& hooks = {}) const override;

 protected:
  struct Parts;
  Flux2Family(const Flux2Variant& variant, const checkpoint::ModelFolder& folder, Context& context,
              const LoadOptions& options, const Hooks& hooks);

 private:
  std::unique_ptr<Parts> parts_;
};

// FLUX.2-dev (Diffusers' Flux2Pipeline): Mistral 3, and a guidance that the transformer takes as an input.
class Flux2Pipeline : public Flux2Family {
 public:
  // Reads and checks every component, then moves them to options.device if it is given. Throws what is
  // missing or does not fit, before anything is moved. Of the text encoder only the layers up to the highest
  // hidden state that calls read are put on the device.
  static std::unique_ptr<Flux2Pipeline> from_pretrained(const checkpoint::ModelFolder& folder,
                                                        Context& context, const LoadOptions& options = {},
                                                        const Hooks& hooks = {});
  // generate() takes prompt, height, width (rounded down to multiples of 16), num_inference_steps, sigmas,
  // guidance_scale, max_sequence_length (of the chat that the prompt is put into), text_encoder_out_layers
  // (hidden states that stand side by side, 0 for the embedding; as many as the transformer is wide for),
  // num_images_per_prompt, seeds and latents ([images, 128, height / 16, width / 16]). Defaults: 1024 x 1024,
  // 50 steps, guidance 4, sequence 512, layers 10, 20, 30.
 private:
  using Flux2Family::Flux2Family;
};

// FLUX.2 klein (Diffusers' Flux2KleinPipeline): Qwen3. Its distilled checkpoints ignore guidance; others
// (is_distilled false in model_index.json) are guided away from the empty prompt.
class Flux2KleinPipeline : public Flux2Family {
 public:
  static std::unique_ptr<Flux2KleinPipeline> from_pretrained(const checkpoint::ModelFolder& folder,
                                                             Context& context,
                                                             const LoadOptions& options = {},
                                                             const Hooks& hooks = {});
  // generate() takes what Flux2Pipeline's does. Default layers: 9, 18, 27.
 private:
  using Flux2Family::Flux2Family;
};

}  // namespace tessera::pipelines
