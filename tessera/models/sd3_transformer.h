#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/nn/config.h"
#include "tessera/nn/layers.h"
#include "tessera/nn/module.h"
#include "tessera/nn/transformer_parts.h"

namespace tessera::models {

struct Sd3TransformerConfig {
  std::int64_t sample_size = 128, patch_size = 2, in_channels = 16, out_channels = 16, num_layers = 18;
  std::int64_t attention_head_dim = 64, num_attention_heads = 18, joint_attention_dim = 4096,
               pooled_projection_dim = 2048, pos_embed_max_size = 96;
  std::vector<std::int64_t> dual_attention_layers;  // blocks with a second attention of the picture alone
  bool qk_norm = false;                             // an RMS norm over each head of queries and keys

  std::int64_t inner_dim() const { return num_attention_heads * attention_head_dim; }
  // Throws kDataLoss or kUnimplemented, naming the key.
  static Sd3TransformerConfig from_json(const nn::Config& config);
};

// Diffusers' SD3Transformer2DModel: blocks with two streams (picture and text) that attend together; the last
// one reads the text and does not go on with it.
class Sd3Transformer : public nn::Module {
 public:
  // How ranks share the weights out.
  static nn::TensorParallelPlan tensor_parallel_plan(const Sd3TransformerConfig& config);
  Sd3Transformer(const Sd3TransformerConfig& config, const nn::Scope& scope);
  ~Sd3Transformer();
  const Sd3TransformerConfig& config() const { return config_; }

  // hidden_states [B, in_channels, H, W] with H and W multiples of patch_size and of at most
  // pos_embed_max_size patches; encoder_hidden_states [B, text tokens, joint_attention_dim];
  // pooled_projections [B, pooled_projection_dim]; timestep f32 [B], 0 to 1000 -> [B, out_channels, H, W].
  // Leaves out the blocks whose numbers are in skip_layers. Names given to the observer are those of
  // Diffusers' modules, with .0, .1, ... where a module returns several.
  Tensor forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                 const Tensor& pooled_projections, const Tensor& timestep,
                 std::span<const int> skip_layers = {}, const nn::Observer& observe = {}) const;

 private:
  Tensor run(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
             const Tensor& pooled_projections, const Tensor& timestep, std::span<const int> skip_layers,
             const nn::Observer& observe) const;

  struct Block;
  Tensor embed_patches(const Tensor& latents) const;
  Tensor unpatchify(const Tensor& tokens, std::int64_t rows, std::int64_t columns) const;

  Sd3TransformerConfig config_;
  std::unique_ptr<nn::Conv2d> patch_proj_;
  nn::Parameter pos_embed_;
  std::unique_ptr<nn::EmbeddingMlp> timestep_embedder_, text_embedder_;
  std::unique_ptr<nn::Linear> context_embedder_, proj_out_;
  std::vector<Block> blocks_;
  std::unique_ptr<nn::AdaptiveNormContinuous> norm_out_;
};

}  // namespace tessera::models
