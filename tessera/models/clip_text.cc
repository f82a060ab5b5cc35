#include "tessera/models/clip_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/ops/ops.h"

namespace tessera::models {

ClipTextConfig ClipTextConfig::from_json(const nn::Config& c) {
  ClipTextConfig out;
  out.vocab_size = c.size("vocab_size", out.vocab_size);
  out.hidden_size = c.size("hidden_size", out.hidden_size);
  out.intermediate_size = c.size("intermediate_size", out.intermediate_size);
  out.max_position_embeddings = c.size("max_position_embeddings", out.max_position_embeddings);
  out.num_hidden_layers = c.count("num_hidden_layers", out.num_hidden_layers);
  out.num_attention_heads = c.size("num_attention_heads", out.num_attention_heads);
  out.projection_dim = c.size("projection_dim", out.projection_dim);
  out.eos_token_id = c.integer("eos_token_id", out.eos_token_id);
  out.layer_norm_eps = c.number("layer_norm_eps", out.layer_norm_eps);
  out.hidden_act = c.text("hidden_act", out.hidden_act);
  if (out.hidden_size % out.num_attention_heads != 0) {
    fail(ErrorCode::kDataLoss, "{}: hidden_size {} does not divide into {} heads", c.what(), out.hidden_size,
         out.num_attention_heads);
  }
  return out;
}

struct ClipTextModel::Layer : nn::Located {
  Layer(const ClipTextConfig& c, const nn::Scope& scope)
      : Located(scope),
        layer_norm1(scope / "layer_norm1", c.hidden_size, c.layer_norm_eps),
        layer_norm2(scope / "layer_norm2", c.hidden_size, c.layer_norm_eps),
        q_proj(scope / "self_attn" / "q_proj", c.hidden_size, c.hidden_size),
        k_proj(scope / "self_attn" / "k_proj", c.hidden_size, c.hidden_size),
        v_proj(scope / "self_attn" / "v_proj", c.hidden_size, c.hidden_size),
        out_proj(scope / "self_attn" / "out_proj", c.hidden_size, c.hidden_size),
        fc1(scope / "mlp" / "fc1", c.hidden_size, c.intermediate_size),
        fc2(scope / "mlp" / "fc2", c.intermediate_size, c.hidden_size),
        act(nn::activation(c.hidden_act)),
        head_dim(c.hidden_size / c.num_attention_heads),
        scale(1.0 / std::sqrt(static_cast<double>(head_dim))) {}

  Tensor forward(const Tensor& x) const {
    Tensor h = layer_norm1(x);
    Tensor attended =
        ops::attention(nn::split_heads(q_proj(h), head_dim), nn::split_heads(k_proj(h), head_dim),
                       nn::split_heads(v_proj(h), head_dim), {}, scale, /*causal=*/true);
    Tensor y = ops::add(x, out_proj(nn::merge_heads(attended)));
    return ops::add(y, fc2(act(fc1(layer_norm2(y)))));
  }

  nn::LayerNorm layer_norm1, layer_norm2;
  nn::Linear q_proj, k_proj, v_proj, out_proj, fc1, fc2;
  nn::Activation act;
  std::int64_t head_dim;
  double scale;
};

nn::TensorParallelPlan ClipTextModel::tensor_parallel_plan(const ClipTextConfig& c) {
  nn::TensorParallelPlan plan;
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    plan.add(fmt::format("encoder.layers.*.self_attn.{}", name),
             nn::colwise(c.hidden_size, c.num_attention_heads));
  }
  plan.add("encoder.layers.*.self_attn.out_proj", nn::rowwise(c.hidden_size, c.num_attention_heads));
  plan.add("encoder.layers.*.mlp.fc1", nn::colwise(c.intermediate_size));
  plan.add("encoder.layers.*.mlp.fc2", nn::rowwise(c.intermediate_size));
  return plan;
}

ClipTextModel::ClipTextModel(const ClipTextConfig& config, const nn::Scope& scope)
    : ClipTextModel("CLIPTextModel", config, scope, false) {}

ClipTextModelWithProjection::ClipTextModelWithProjection(const ClipTextConfig& config, const nn::Scope& scope)
    : ClipTextModel("CLIPTextModelWithProjection", config, scope, true) {}

ClipTextModel::ClipTextModel(std::string class_name, const ClipTextConfig& config, const nn::Scope& scope,
                             bool projection)
    : Module(std::move(class_name)), config_(config) {
  // Published checkpoints name everything text_model.*; newer files lack the prefix.
  bool prefixed = (scope / "text_model" / "embeddings" / "token_embedding").has("weight") ||
                  !(scope / "embeddings" / "token_embedding").has("weight");
  nn::Scope root = prefixed ? scope / "text_model" : scope;
  nn::Scope embeddings = root / "embeddings";
  embeddings.ignore("position_ids");
  token_embedding_ =
      std::make_unique<nn::Embedding>(embeddings / "token_embedding", config.vocab_size, config.hidden_size);
  position_embedding_ = std::make_unique<nn::Embedding>(embeddings / "position_embedding",
                                                        config.max_position_embeddings, config.hidden_size);
  for (int i = 0; i < config.num_hidden_layers; ++i)
    layers_.emplace_back(config, root / "encoder" / "layers" / i);
  final_layer_norm_ =
      std::make_unique<nn::LayerNorm>(root / "final_layer_norm", config.hidden_size, config.layer_norm_eps);
  if (projection) {
    text_projection_ = std::make_unique<nn::Linear>(scope / "text_projection", config.hidden_size,
                                                    config.projection_dim, false);
  }
}

ClipTextModel::~ClipTextModel() = default;

ClipTextModel::Output ClipTextModel::forward(Context& context, const graph::MeshPtr& mesh,
                                             std::span<const std::int32_t> ids, const Shape& shape,
                                             const nn::Observer& observe) const {
  if (shape.rank() != 2 || shape[1] > config_.max_position_embeddings) {
    invalid_argument("CLIP takes ids [B, S] with S up to {}; {} were given", config_.max_position_embeddings,
                     to_string(shape));
  }
  return call([&] { return run(context, mesh, ids, shape, observe); });
}

ClipTextModel::Output ClipTextModel::run(Context& context, const graph::MeshPtr& mesh,
                                         std::span<const std::int32_t> ids, const Shape& shape,
                                         const nn::Observer& observe) const {
  std::vector<std::int32_t> positions(static_cast<std::size_t>(shape[1]));
  std::iota(positions.begin(), positions.end(), 0);
  Tensor x = ops::add((*token_embedding_)(context.from_i32(ids, shape, mesh)),
                      (*position_embedding_)(context.from_i32(positions, {shape[1]}, mesh)));
  if (observe) observe("embeddings", x);
  Output out;
  out.hidden_states.push_back(x);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    block(layers_[i].where(), [&] { x = layers_[i].forward(x); });
    if (observe) observe(fmt::format("layers.{}", i), x);
    out.hidden_states.push_back(x);
  }
  out.last_hidden_state = (*final_layer_norm_)(x);
  if (observe) observe("final_layer_norm", out.last_hidden_state);
  std::vector<std::int32_t> pooled = clip_pooling_positions(ids, shape, config_.eos_token_id);
  out.pooled = ops::take_rows(out.last_hidden_state, context.from_i32(pooled, {shape[0]}, mesh));
  if (text_projection_) out.pooled = (*text_projection_)(out.pooled);
  return out;
}

std::vector<std::int32_t> clip_pooling_positions(std::span<const std::int32_t> ids, const Shape& shape,
                                                 std::int64_t eos_token_id) {
  std::vector<std::int32_t> positions;
  auto length = static_cast<std::size_t>(shape[1]);
  for (std::size_t b = 0; b < static_cast<std::size_t>(shape[0]); ++b) {
    auto row = ids.subspan(b * length, length);
    auto it = eos_token_id == 2 ? std::ranges::max_element(row)
                                : std::ranges::find(row, static_cast<std::int32_t>(eos_token_id));
    positions.push_back(it == row.end() ? 0 : static_cast<std::int32_t>(it - row.begin()));
  }
  return positions;
}

}  // namespace tessera::models
