#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/nn/config.h"
#include "tessera/nn/layers.h"
#include "tessera/nn/module.h"
#include "tessera/nn/rope.h"

namespace tessera::models {

// Language models of the Llama family: RMS norms, rotary positions, grouped key-value heads, a gated
// feed-forward. mistral3.h and qwen3.h read the configs of those that text-to-image pipelines use.
struct DecoderConfig {
  std::int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0;
  double rms_norm_eps = 1e-6, rope_theta = 1e4;
  std::string hidden_act = "silu";
  bool head_norms = false;  // RMS norms over each head of queries and keys

  // Reads what the family's configs have in common. Throws kUnimplemented for attention windows and scaled
  // rotary positions, kDataLoss for sizes that do not fit each other.
  static DecoderConfig from_json(const nn::Config& config);
};

// Such a model as a text encoder: what its layers say, without the head that would predict the next token.
class DecoderModel : public nn::Module {
 public:
  // How ranks share the weights out.
  static nn::TensorParallelPlan tensor_parallel_plan(const DecoderConfig& config);
  virtual ~DecoderModel();
  const DecoderConfig& config() const { return config_; }

  // Hidden states of the asked numbers, [B, S, hidden_size] each: 0 is the embedding, k what layer k - 1
  // gives, the last (num_hidden_layers) goes through the final norm; negative numbers count from the end.
  // Layers above the highest asked for are not run. ids and attention_mask: B * S numbers for the shape
  // [B, S]; no token sees a later one, or one whose mask is 0. Positions count from 0 whatever the mask.
  // Throws kInvalidArgument for a number there is not. Names given to the observer: "embed_tokens",
  // "layers.0.self_attn", "layers.0", ...
  std::vector<Tensor> forward(Context& context, const graph::MeshPtr& mesh, std::span<const std::int32_t> ids,
                              std::span<const std::int32_t> attention_mask, const Shape& shape,
                              std::span<const int> hidden_states, const nn::Observer& observe = {}) const;

  // The highest of the hidden states as a number from 0 to num_hidden_layers. Throws as forward does.
  int highest(std::span<const int> hidden_states) const;
  // Whether that hidden state needs the weight of this path.
  bool needs(std::string_view path, int hidden_state) const;

 protected:
  // Names below the scope: embed_tokens, layers.0, ..., norm. `class_name` is Transformers'.
  DecoderModel(std::string class_name, const DecoderConfig& config, const nn::Scope& scope);

 private:
  struct Layer;
  std::vector<Tensor> run(Context& context, const graph::MeshPtr& mesh, std::span<const std::int32_t> ids,
                          std::span<const std::int32_t> attention_mask, const Shape& shape,
                          std::span<const int> hidden_states, const nn::Observer& observe) const;
  int checked(int hidden_state) const;
  DecoderConfig config_;
  std::string layers_path_, norm_path_;
  std::unique_ptr<nn::Embedding> embed_tokens_;
  std::vector<Layer> layers_;
  std::unique_ptr<nn::RmsNorm> norm_;
};

}  // namespace tessera::models
