#include "tessera/models/t5_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/ops/ops.h"

namespace tessera::models {

T5Config T5Config::from_json(const nn::Config& c) {
  T5Config out;
  out.vocab_size = c.size("vocab_size", out.vocab_size);
  out.d_model = c.size("d_model", out.d_model);
  out.d_kv = c.size("d_kv", out.d_kv);
  out.d_ff = c.size("d_ff", out.d_ff);
  out.num_layers = c.count("num_layers", out.num_layers);
  out.num_heads = c.size("num_heads", out.num_heads);
  out.relative_attention_num_buckets =
      c.size("relative_attention_num_buckets", out.relative_attention_num_buckets);
  out.relative_attention_max_distance =
      c.size("relative_attention_max_distance", out.relative_attention_max_distance);
  out.layer_norm_epsilon = c.number("layer_norm_epsilon", out.layer_norm_epsilon);
  // "gated-gelu" has meant the tanh approximation since the first gated checkpoints.
  std::string projection = c.text("feed_forward_proj", "relu");
  out.gated = projection.starts_with("gated-");
  out.activation = projection == "gated-gelu" ? "gelu_new" : out.gated ? projection.substr(6) : projection;
  if (out.relative_attention_num_buckets < 4 || out.relative_attention_num_buckets % 4 != 0 ||
      out.relative_attention_max_distance <= out.relative_attention_num_buckets / 4) {
    fail(ErrorCode::kDataLoss, "{}: {} relative attention buckets up to distance {} make no sense", c.what(),
         out.relative_attention_num_buckets, out.relative_attention_max_distance);
  }
  return out;
}

struct T5Encoder::Block : nn::Located {
  Block(const T5Config& c, const nn::Scope& scope)
      : Located(scope),
        attention_norm(scope / "layer" / 0 / "layer_norm", c.d_model, c.layer_norm_epsilon),
        feed_forward_norm(scope / "layer" / 1 / "layer_norm", c.d_model, c.layer_norm_epsilon),
        q(scope / "layer" / 0 / "SelfAttention" / "q", c.d_model, c.num_heads * c.d_kv, false),
        k(scope / "layer" / 0 / "SelfAttention" / "k", c.d_model, c.num_heads * c.d_kv, false),
        v(scope / "layer" / 0 / "SelfAttention" / "v", c.d_model, c.num_heads * c.d_kv, false),
        o(scope / "layer" / 0 / "SelfAttention" / "o", c.num_heads * c.d_kv, c.d_model, false),
        wi(dense(scope) / (c.gated ? "wi_0" : "wi"), c.d_model, c.d_ff, false),
        wo(dense(scope) / "wo", c.d_ff, c.d_model, false),
        act(nn::activation(c.activation)),
        head_dim(c.d_kv) {
    if (c.gated) wi_1 = std::make_unique<nn::Linear>(dense(scope) / "wi_1", c.d_model, c.d_ff, false);
  }

  static nn::Scope dense(const nn::Scope& scope) { return scope / "layer" / 1 / "DenseReluDense"; }

  Tensor attend(const Tensor& x, const Tensor& bias) const {
    Tensor h = attention_norm(x);
    // T5 folds the usual 1 / sqrt(d) into its weights.
    Tensor y = ops::attention(nn::split_heads(q(h), head_dim), nn::split_heads(k(h), head_dim),
                              nn::split_heads(v(h), head_dim), bias, 1.0, /*causal=*/false);
    return o(nn::merge_heads(y));
  }

  Tensor feed_forward(const Tensor& x) const {
    Tensor h = feed_forward_norm(x);
    Tensor y = act(wi(h));
    if (wi_1) y = ops::multiply(y, (*wi_1)(h));
    return wo(y);
  }

  nn::RmsNorm attention_norm, feed_forward_norm;
  nn::Linear q, k, v, o, wi, wo;
  std::unique_ptr<nn::Linear> wi_1;
  nn::Activation act;
  std::int64_t head_dim;
};

nn::TensorParallelPlan T5Encoder::tensor_parallel_plan(const T5Config& c) {
  nn::TensorParallelPlan plan;
  std::string attention = "block.*.layer.0.SelfAttention.", dense = "block.*.layer.1.DenseReluDense.";
  for (const char* name : {"q", "k", "v"})
    plan.add(attention + name, nn::colwise(c.num_heads * c.d_kv, c.num_heads));
  plan.add(attention + "o", nn::rowwise(c.num_heads * c.d_kv, c.num_heads));
  plan.add("block.0.layer.0.SelfAttention.relative_attention_bias", nn::colwise(c.num_heads, c.num_heads));
  plan.add(dense + (c.gated ? "wi_0" : "wi"), nn::colwise(c.d_ff));
  if (c.gated) plan.add(dense + "wi_1", nn::colwise(c.d_ff));
  plan.add(dense + "wo", nn::rowwise(c.d_ff));
  return plan;
}

T5Encoder::T5Encoder(const T5Config& config, const nn::Scope& scope)
    : Module("T5EncoderModel"), config_(config) {
  nn::Scope encoder = scope / "encoder";
  // One tensor with two names: published files hold shared.weight, some both, some the second only.
  nn::Scope shared = scope / "shared", alias = encoder / "embed_tokens";
  bool renamed = !shared.has("weight") && alias.has("weight");
  shared_ = std::make_unique<nn::Embedding>(renamed ? alias : shared, config.vocab_size, config.d_model);
  alias.ignore("weight");
  relative_attention_bias_ = std::make_unique<nn::Embedding>(
      (encoder / "block" / 0 / "layer" / 0 / "SelfAttention" / "relative_attention_bias").outside_blocks(),
      config.relative_attention_num_buckets, config.num_heads);
  for (int i = 0; i < config.num_layers; ++i) blocks_.emplace_back(config, encoder / "block" / i);
  final_layer_norm_ =
      std::make_unique<nn::RmsNorm>(encoder / "final_layer_norm", config.d_model, config.layer_norm_epsilon);
}

T5Encoder::~T5Encoder() = default;

Tensor T5Encoder::forward(Context& context, const graph::MeshPtr& mesh, std::span<const std::int32_t> ids,
                          const Shape& shape, const nn::Observer& observe) const {
  return call([&] { return run(context, mesh, ids, shape, observe); });
}

Tensor T5Encoder::run(Context& context, const graph::MeshPtr& mesh, std::span<const std::int32_t> ids,
                      const Shape& shape, const nn::Observer& observe) const {
  std::int64_t length = shape[1];
  Tensor x = (*shared_)(context.from_i32(ids, shape, mesh));
  std::vector<std::int32_t> buckets = t5_relative_buckets(length, config_.relative_attention_num_buckets,
                                                          config_.relative_attention_max_distance);
  Tensor bias = (*relative_attention_bias_)(context.from_i32(buckets, {length, length}, mesh));
  bias = ops::reshape(ops::transpose(bias, {2, 0, 1}), {1, bias.dim(2), length, length});
  if (observe) observe("position_bias", bias);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    block(blocks_[i].where(), [&] {
      x = ops::add(x, blocks_[i].attend(x, bias));
      if (observe) observe(fmt::format("block.{}.attn", i), x);
      x = ops::add(x, blocks_[i].feed_forward(x));
    });
    if (observe) observe(fmt::format("block.{}", i), x);
  }
  x = (*final_layer_norm_)(x);
  if (observe) observe("final_layer_norm", x);
  return x;
}

std::vector<std::int32_t> t5_relative_buckets(std::int64_t length, std::int64_t num_buckets,
                                              std::int64_t max_distance) {
  std::int64_t half = num_buckets / 2, exact = half / 2;
  auto bucket = [&](std::int64_t distance) {
    if (distance < exact) return distance;
    // In f32, as the reference computes it: the steps of the scale depend on it.
    float ratio =
        std::log(static_cast<float>(distance) / static_cast<float>(exact)) /
        static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
    auto large = exact + static_cast<std::int64_t>(ratio * static_cast<float>(half - exact));
    return std::min(large, half - 1);
  };
  std::vector<std::int32_t> out(static_cast<std::size_t>(length * length));
  for (std::int64_t q = 0; q < length; ++q) {
    for (std::int64_t k = 0; k < length; ++k) {
      out[static_cast<std::size_t>(q * length + k)] =
          static_cast<std::int32_t>((k > q ? half : 0) + bucket(std::abs(k - q)));
    }
  }
  return out;
}

}  // namespace tessera::models
