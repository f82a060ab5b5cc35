#include "tessera/models/decoder_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/nn/transformer_parts.h"
#include "tessera/ops/ops.h"

namespace tessera::models {
namespace {

// rope_theta stands by itself or within rope_parameters; older files have rope_scaling beside it.
double read_rope_theta(const nn::Config& c) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!c.has(key)) continue;
    nn::Config rope = c.object(key);
    std::string type = rope.text("rope_type", rope.text("type", "default"));
    if (type != "default") {
      fail(ErrorCode::kUnimplemented, "{}: the rope_type '{}' is not supported; supported: default",
           rope.what(), type);
    }
    if (rope.has("rope_theta")) return rope.number("rope_theta");
  }
  return c.number("rope_theta", 1e4);
}

}  // namespace

DecoderConfig DecoderConfig::from_json(const nn::Config& c) {
  DecoderConfig out;
  out.vocab_size = c.size("vocab_size");
  out.hidden_size = c.size("hidden_size");
  out.intermediate_size = c.size("intermediate_size");
  out.num_hidden_layers = c.count("num_hidden_layers");
  out.num_attention_heads = c.size("num_attention_heads");
  out.num_key_value_heads = c.size("num_key_value_heads", out.num_attention_heads);
  out.head_dim = c.size("head_dim", std::max<std::int64_t>(out.hidden_size / out.num_attention_heads, 1));
  out.rms_norm_eps = c.number("rms_norm_eps", out.rms_norm_eps);
  out.rope_theta = read_rope_theta(c);
  out.hidden_act = c.text("hidden_act", out.hidden_act);
  c.refuse_flag("attention_bias");
  c.refuse_flag("mlp_bias");
  c.refuse_flag("use_sliding_window");
  if (out.num_attention_heads % out.num_key_value_heads != 0 || out.head_dim % 2 != 0) {
    fail(ErrorCode::kDataLoss, "{}: {} attention heads of {} over {} key-value heads do not fit", c.what(),
         out.num_attention_heads, out.head_dim, out.num_key_value_heads);
  }
  if (!(out.rope_theta > 0)) fail(ErrorCode::kDataLoss, "{}: rope_theta is {}", c.what(), out.rope_theta);
  return out;
}

struct DecoderModel::Layer : nn::Located {
  Layer(const nn::Scope& scope, const DecoderConfig& c)
      : Located(scope),
        input_layernorm(scope / "input_layernorm", c.hidden_size, c.rms_norm_eps),
        post_attention_layernorm(scope / "post_attention_layernorm", c.hidden_size, c.rms_norm_eps),
        q_proj(scope / "self_attn" / "q_proj", c.hidden_size, c.num_attention_heads * c.head_dim, false),
        k_proj(scope / "self_attn" / "k_proj", c.hidden_size, c.num_key_value_heads * c.head_dim, false),
        v_proj(scope / "self_attn" / "v_proj", c.hidden_size, c.num_key_value_heads * c.head_dim, false),
        o_proj(scope / "self_attn" / "o_proj", c.num_attention_heads * c.head_dim, c.hidden_size, false),
        gate_proj(scope / "mlp" / "gate_proj", c.hidden_size, c.intermediate_size, false),
        up_proj(scope / "mlp" / "up_proj", c.hidden_size, c.intermediate_size, false),
        down_proj(scope / "mlp" / "down_proj", c.intermediate_size, c.hidden_size, false),
        act(nn::activation(c.hidden_act)),
        head_dim(c.head_dim),
        scale(1.0 / std::sqrt(static_cast<double>(c.head_dim))) {
    if (c.head_norms) {
      q_norm = std::make_unique<nn::RmsNorm>(scope / "self_attn" / "q_norm", c.head_dim, c.rms_norm_eps);
      k_norm = std::make_unique<nn::RmsNorm>(scope / "self_attn" / "k_norm", c.head_dim, c.rms_norm_eps);
    }
  }

  Tensor attend(const Tensor& x, const Tensor& mask, const nn::RopeTables& rope) const {
    auto rotated = [&](const nn::Linear& projection, const std::unique_ptr<nn::RmsNorm>& norm) {
      const nn::RmsNorm* norms[] = {norm.get()};
      return nn::norm_and_rotate(std::array{nn::split_heads(projection(x), head_dim)},
                                 std::span(norms, norm ? 1 : 0), &rope, /*halves=*/true);
    };
    Tensor q = rotated(q_proj, q_norm), k = rotated(k_proj, k_norm);
    Tensor v = nn::split_heads(v_proj(x), head_dim);
    return o_proj(nn::merge_heads(ops::attention(q, k, v, mask, scale, /*causal=*/true)));
  }

  Tensor forward(const Tensor& x, const Tensor& mask, const nn::RopeTables& rope,
                 const nn::Observer& observe) const {
    Tensor attended = attend(input_layernorm(x), mask, rope);
    if (observe) observe("self_attn", attended);
    Tensor y = ops::add(x, attended);
    Tensor h = post_attention_layernorm(y);
    return ops::add(y, down_proj(ops::multiply(act(gate_proj(h)), up_proj(h))));
  }

  nn::RmsNorm input_layernorm, post_attention_layernorm;
  nn::Linear q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj;
  std::unique_ptr<nn::RmsNorm> q_norm, k_norm;
  nn::Activation act;
  std::int64_t head_dim;
  double scale;
};

nn::TensorParallelPlan DecoderModel::tensor_parallel_plan(const DecoderConfig& c) {
  nn::TensorParallelPlan plan;
  std::string attention = "layers.*.self_attn.", mlp = "layers.*.mlp.";
  std::int64_t keys = c.num_key_value_heads;
  plan.add(attention + "q_proj", nn::colwise(c.num_attention_heads * c.head_dim, c.num_attention_heads));
  plan.add(attention + "k_proj", nn::repeated_colwise(keys * c.head_dim, keys));
  plan.add(attention + "v_proj", nn::repeated_colwise(keys * c.head_dim, keys));
  plan.add(attention + "o_proj", nn::rowwise(c.num_attention_heads * c.head_dim, c.num_attention_heads));
  plan.add(mlp + "gate_proj", nn::colwise(c.intermediate_size));
  plan.add(mlp + "up_proj", nn::colwise(c.intermediate_size));
  plan.add(mlp + "down_proj", nn::rowwise(c.intermediate_size));
  return plan;
}

DecoderModel::DecoderModel(std::string class_name, const DecoderConfig& config, const nn::Scope& scope)
    : Module(std::move(class_name)),
      config_(config),
      layers_path_((scope / "layers").path()),
      norm_path_((scope / "norm").path()) {
  embed_tokens_ =
      std::make_unique<nn::Embedding>(scope / "embed_tokens", config.vocab_size, config.hidden_size);
  for (int i = 0; i < config.num_hidden_layers; ++i) layers_.emplace_back(scope / "layers" / i, config);
  norm_ = std::make_unique<nn::RmsNorm>(scope / "norm", config.hidden_size, config.rms_norm_eps);
}

DecoderModel::~DecoderModel() = default;

int DecoderModel::checked(int hidden_state) const {
  auto last = static_cast<int>(layers_.size());
  int positive = hidden_state < 0 ? hidden_state + last + 1 : hidden_state;
  if (positive < 0 || positive > last) {
    invalid_argument("hidden state {}: this text encoder has those from 0 to {}", hidden_state, last);
  }
  return positive;
}

int DecoderModel::highest(std::span<const int> hidden_states) const {
  int out = 0;
  for (int k : hidden_states) out = std::max(out, checked(k));
  return out;
}

bool DecoderModel::needs(std::string_view path, int hidden_state) const {
  if (path.starts_with(norm_path_ + ".")) return hidden_state == static_cast<int>(layers_.size());
  if (!path.starts_with(layers_path_ + ".")) return true;
  int layer = 0;
  const char* number = path.data() + layers_path_.size() + 1;
  std::from_chars(number, path.data() + path.size(), layer);
  return layer < hidden_state;
}

std::vector<Tensor> DecoderModel::forward(Context& context, const graph::MeshPtr& mesh,
                                          std::span<const std::int32_t> ids,
                                          std::span<const std::int32_t> attention_mask, const Shape& shape,
                                          std::span<const int> hidden_states,
                                          const nn::Observer& observe) const {
  return call([&] { return run(context, mesh, ids, attention_mask, shape, hidden_states, observe); });
}

std::vector<Tensor> DecoderModel::run(Context& context, const graph::MeshPtr& mesh,
                                      std::span<const std::int32_t> ids,
                                      std::span<const std::int32_t> attention_mask, const Shape& shape,
                                      std::span<const int> hidden_states, const nn::Observer& observe) const {
  std::int64_t batch = shape[0], length = shape[1];
  int top = highest(hidden_states);
  Tensor x = (*embed_tokens_)(context.from_i32(ids, shape, mesh));
  if (observe) observe("embed_tokens", x);
  std::vector<float> hidden(attention_mask.size());
  std::ranges::transform(attention_mask, hidden.begin(), [](std::int32_t seen) {
    return seen != 0 ? 0.0f : -std::numeric_limits<float>::infinity();
  });
  Tensor mask = ops::cast(context.from_f32(hidden, {batch, 1, 1, length}, mesh), x.dtype());
  nn::RopeTables rope = nn::sequence_rope_tables(context, mesh, length, config_.head_dim, config_.rope_theta);

  // Only those that are asked for live on.
  std::vector<Tensor> out(hidden_states.size());
  auto keep = [&](int state) {
    for (std::size_t k = 0; k < out.size(); ++k) {
      if (checked(hidden_states[k]) == state) out[k] = x;
    }
  };
  keep(0);
  for (int i = 0; i < top; ++i) {
    const Layer& layer = layers_[static_cast<std::size_t>(i)];
    nn::Observer inner;
    if (observe) {
      inner = [&](const std::string& name, const Tensor& t) {
        observe(fmt::format("layers.{}.{}", i, name), t);
      };
    }
    block(layer.where(), [&] { x = layer.forward(x, mask, rope, inner); });
    if (observe) observe(fmt::format("layers.{}", i), x);
    if (i + 1 == config_.num_hidden_layers) x = (*norm_)(x);
    keep(i + 1);
  }
  return out;
}

}  // namespace tessera::models
