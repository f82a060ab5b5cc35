#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tessera/nn/config.h"
#include "tessera/nn/layers.h"
#include "tessera/nn/module.h"

namespace tessera::models {

struct ClipTextConfig {
  std::int64_t vocab_size = 49408, hidden_size = 512, intermediate_size = 2048, max_position_embeddings = 77;
  std::int64_t num_hidden_layers = 12, num_attention_heads = 8, eos_token_id = 49407;
  std::int64_t projection_dim = 512;  // of ClipTextModelWithProjection alone
  double layer_norm_eps = 1e-5;
  std::string hidden_act = "quick_gelu";

  static ClipTextConfig from_json(const nn::Config& config);
};

// Transformers' CLIPTextModel: a causal transformer over at most max_position_embeddings tokens.
class ClipTextModel : public nn::Module {
 public:
  struct Output {
    Tensor last_hidden_state;  // [B, S, hidden_size], after the final norm
    Tensor pooled;             // [B, hidden_size]: the last hidden state at the end-of-text token
    // [B, S, hidden_size] each: the embeddings, then every layer's output, all before the final norm.
    std::vector<Tensor> hidden_states;
  };

  // How ranks share the weights out.
  static nn::TensorParallelPlan tensor_parallel_plan(const ClipTextConfig& config);
  ClipTextModel(const ClipTextConfig& config, const nn::Scope& scope);
  ~ClipTextModel();
  const ClipTextConfig& config() const { return config_; }
  // ids: B * S token ids for the shape [B, S]. Names given to the observer: "embeddings", "layers.0", ...,
  // "final_layer_norm".
  Output forward(Context& context, const graph::MeshPtr& mesh, std::span<const std::int32_t> ids,
                 const Shape& shape, const nn::Observer& observe = {}) const;

 protected:
  ClipTextModel(std::string class_name, const ClipTextConfig& config, const nn::Scope& scope,
                bool projection);

 private:
  Output run(Context& context, const graph::MeshPtr& mesh, std::span<const std::int32_t> ids,
             const Shape& shape, const nn::Observer& observe) const;

  struct Layer;
  ClipTextConfig config_;
  std::unique_ptr<nn::Embedding> token_embedding_, position_embedding_;
  std::vector<Layer> layers_;
  std::unique_ptr<nn::LayerNorm> final_layer_norm_;
  std::unique_ptr<nn::Linear> text_projection_;
};

// Transformers' CLIPTextModelWithProjection: as above, but `pooled` goes through a linear layer, to
// [B, projection_dim].
class ClipTextModelWithProjection : public ClipTextModel {
 public:
  ClipTextModelWithProjection(const ClipTextConfig& config, const nn::Scope& scope);
};

// For each of the rows of ids [B, S], the position that CLIP pools at: the largest id where eos_token_id is 2
// (as in checkpoints written before that was mended), else the first end-of-text token, or 0.
std::vector<std::int32_t> clip_pooling_positions(std::span<const std::int32_t> ids, const Shape& shape,
                                                 std::int64_t eos_token_id);

}  // namespace tessera::models
