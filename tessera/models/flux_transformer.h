#pragma once

#include <memory>
#include <vector>

#include "tessera/nn/config.h"
#include "tessera/nn/layers.h"
#include "tessera/nn/module.h"
#include "tessera/nn/rope.h"
#include "tessera/nn/transformer_parts.h"

namespace tessera::models {

struct FluxTransformerConfig {
  std::int64_t in_channels = 64, out_channels = 64, num_layers = 19, num_single_layers = 38,
               attention_head_dim = 128;
  std::int64_t num_attention_heads = 24, joint_attention_dim = 4096, pooled_projection_dim = 768;
  bool guidance_embeds = false;
  std::vector<std::int64_t> axes_dims_rope{16, 56, 56};

  std::int64_t inner_dim() const { return num_attention_heads * attention_head_dim; }
  static FluxTransformerConfig from_json(const nn::Config& config);
};

// Diffusers' FluxTransformer2DModel: blocks with two streams (text and picture) that attend together, then
// blocks over both in one.
class FluxTransformer : public nn::Module {
 public:
  // How ranks share the weights out.
  static nn::TensorParallelPlan tensor_parallel_plan(const FluxTransformerConfig& config);
  FluxTransformer(const FluxTransformerConfig& config, const nn::Scope& scope);
  ~FluxTransformer();
  const FluxTransformerConfig& config() const { return config_; }

  // Rotary tables for text tokens (all at the origin) and then the tokens of a picture, row by row.
  nn::RopeTables rope_tables(Context& context, const graph::MeshPtr& mesh, std::int64_t text_tokens,
                             std::int64_t rows, std::int64_t columns) const;

  // hidden_states [B, tokens, in_channels], encoder_hidden_states [B, text tokens, joint_attention_dim],
  // pooled_projections [B, pooled_projection_dim]; timestep (t / 1000) and guidance f32 [B], guidance empty
  // without guidance_embeds -> [B, tokens, out_channels]. Names given to the observer are those of Diffusers'
  // modules, with .0 and .1 (text, picture) where a module returns two.
  Tensor forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                 const Tensor& pooled_projections, const Tensor& timestep, const Tensor& guidance,
                 const nn::RopeTables& rope, const nn::Observer& observe = {}) const;

 private:
  Tensor run(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
             const Tensor& pooled_projections, const Tensor& timestep, const Tensor& guidance,
             const nn::RopeTables& rope, const nn::Observer& observe) const;

  struct TimeTextEmbed;
  struct DoubleBlock;
  struct SingleBlock;
  FluxTransformerConfig config_;
  std::unique_ptr<nn::Linear> x_embedder_, context_embedder_, proj_out_;
  std::unique_ptr<nn::AdaptiveNormContinuous> norm_out_;
  std::unique_ptr<TimeTextEmbed> time_text_embed_;
  std::vector<DoubleBlock> double_blocks_;
  std::vector<SingleBlock> single_blocks_;
};

}  // namespace tessera::models
