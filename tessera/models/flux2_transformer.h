#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tessera/nn/config.h"
#include "tessera/nn/layers.h"
#include "tessera/nn/module.h"
#include "tessera/nn/rope.h"
#include "tessera/nn/transformer_parts.h"

namespace tessera::models {

struct Flux2TransformerConfig {
  std::int64_t in_channels = 128, out_channels = 128, num_layers = 8, num_single_layers = 48;
  std::int64_t attention_head_dim = 128, num_attention_heads = 48, joint_attention_dim = 15360;
  std::int64_t mlp_hidden_dim = 18432;  // inner_dim times mlp_ratio
  std::vector<std::int64_t> axes_dims_rope{32, 32, 32, 32};
  double rope_theta = 2000, eps = 1e-6;
  bool guidance_embeds = true;

  std::int64_t inner_dim() const { return num_attention_heads * attention_head_dim; }
  static Flux2TransformerConfig from_json(const nn::Config& config);
};

// Diffusers' Flux2Transformer2DModel: blocks with two streams (text and picture) that attend together, then
// parallel blocks over both in one. No layer has a bias; all blocks of a kind share their modulation.
class Flux2Transformer : public nn::Module {
 public:
  // How ranks share the weights out.
  static nn::TensorParallelPlan tensor_parallel_plan(const Flux2TransformerConfig& config);
  Flux2Transformer(const Flux2TransformerConfig& config, const nn::Scope& scope);
  ~Flux2Transformer();
  const Flux2TransformerConfig& config() const { return config_; }

  // Rotary tables for text tokens, numbered along the last axis, and then the tokens of a picture, row by row
  // along the second and third.
  nn::RopeTables rope_tables(Context& context, const graph::MeshPtr& mesh, std::int64_t text_tokens,
                             std::int64_t rows, std::int64_t columns) const;

  // hidden_states [B, tokens, in_channels], encoder_hidden_states [B, text tokens, joint_attention_dim];
  // timestep (t / 1000) and guidance f32 [B], guidance without effect without guidance_embeds and left out
  // if it is empty -> [B, tokens, out_channels]. Names given to the observer are those of Diffusers' modules,
  // with .0 and .1 where a module returns two (a block: text, picture; an attention: picture, text).
  Tensor forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states, const Tensor& timestep,
                 const Tensor& guidance, const nn::RopeTables& rope, const nn::Observer& observe = {}) const;

 private:
  Tensor run(const Tensor& hidden_states, const Tensor& encoder_hidden_states, const Tensor& timestep,
             const Tensor& guidance, const nn::RopeTables& rope, const nn::Observer& observe) const;

  struct TimeGuidanceEmbed;
  struct DoubleBlock;
  struct SingleBlock;
  Flux2TransformerConfig config_;
  std::unique_ptr<nn::Linear> x_embedder_, context_embedder_, proj_out_;
  std::unique_ptr<nn::Linear> modulation_image_, modulation_text_, modulation_single_;
  std::unique_ptr<nn::AdaptiveNormContinuous> norm_out_;
  std::unique_ptr<TimeGuidanceEmbed> time_guidance_embed_;
  std::vector<DoubleBlock> double_blocks_;
  std::vector<SingleBlock> single_blocks_;
};

}  // namespace tessera::models
