#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tessera/nn/config.h"
#include "tessera/nn/layers.h"
#include "tessera/nn/module.h"

namespace tessera::models {

struct T5Config {
  std::int64_t vocab_size = 32128, d_model = 512, d_kv = 64, d_ff = 2048, num_layers = 6, num_heads = 8;
  std::int64_t relative_attention_num_buckets = 32, relative_attention_max_distance = 128;
  double layer_norm_epsilon = 1e-6;
  bool gated = false;
  std::string activation = "relu";

  static T5Config from_json(const nn::Config& config);
};

// Transformers' T5EncoderModel. It is given no attention mask, as Diffusers gives none: padding counts.
class T5Encoder : public nn::Module {
 public:
  // How ranks share the weights out.
  static nn::TensorParallelPlan tensor_parallel_plan(const T5Config& config);
  T5Encoder(const T5Config& config, const nn::Scope& scope);
  ~T5Encoder();
  const T5Config& config() const { return config_; }
  // ids: B * S token ids for the shape [B, S] -> [B, S, d_model]. Names given to the observer:
  // "position_bias", "block.0.attn" (with its residual), "block.0", ..., "final_layer_norm".
  Tensor forward(Context& context, const graph::MeshPtr& mesh, std::span<const std::int32_t> ids,
                 const Shape& shape, const nn::Observer& observe = {}) const;

 private:
  Tensor run(Context& context, const graph::MeshPtr& mesh, std::span<const std::int32_t> ids,
             const Shape& shape, const nn::Observer& observe) const;

  struct Block;
  T5Config config_;
  std::unique_ptr<nn::Embedding> shared_, relative_attention_bias_;
  std::vector<Block> blocks_;
  std::unique_ptr<nn::RmsNorm> final_layer_norm_;
};

// The bucket of each pair (query, key), row-major [length, length]: half of the buckets for keys after the
// query; in each half the first half for exact distances, the rest on a logarithmic scale up to max_distance
// (Raffel et al. 2020, 2.1).
std::vector<std::int32_t> t5_relative_buckets(std::int64_t length, std::int64_t num_buckets,
                                              std::int64_t max_distance);

}  // namespace tessera::models
