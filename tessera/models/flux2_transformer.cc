#include "tessera/models/flux2_transformer.h"

#include <fmt/format.h>

#include <array>

#include "tessera/base/error.h"
#include "tessera/ops/ops.h"

namespace tessera::models {
namespace {

// What a modulation gives for one part of a block, [B, dim] each.
struct Modulation {
  Tensor shift, scale, gate;
  Tensor apply(const Tensor& normed) const { return ops::modulate(normed, shift, scale); }
};

// The parts of a modulation's output [B, parts * 3 * dim].
std::vector<Modulation> split_modulation(const Tensor& all, int parts) {
  std::vector<Tensor> thirds = ops::split(all, 3 * parts, 1);
  std::vector<Modulation> out;
  for (std::size_t i = 0; i < thirds.size(); i += 3) out.push_back({thirds[i], thirds[i + 1], thirds[i + 2]});
  return out;
}

// SiLU of the first half of the last axis times the second half.
Tensor swiglu(const Tensor& x) {
  std::vector<Tensor> halves = ops::split(x, 2, 2);
  return ops::multiply(ops::silu(halves[0]), halves[1]);
}

struct FeedForward {
  FeedForward(const nn::Scope& scope, std::int64_t dim, std::int64_t hidden)
      : linear_in(scope / "linear_in", dim, 2 * hidden, false),
        linear_out(scope / "linear_out", hidden, dim, false) {}
  Tensor operator()(const Tensor& x) const { return linear_out(swiglu(linear_in(x))); }
  nn::Linear linear_in, linear_out;
};

nn::HeadProjections projections_of(const nn::Scope& scope, const Flux2TransformerConfig& c, bool added) {
  return {scope, c.num_attention_heads, c.attention_head_dim, added, c.eps, /*bias=*/false};
}

}  // namespace

Flux2TransformerConfig Flux2TransformerConfig::from_json(const nn::Config& c) {
  Flux2TransformerConfig out;
  out.in_channels = c.size("in_channels", out.in_channels);
  out.out_channels = c.size("out_channels", out.in_channels);
  out.num_layers = c.count("num_layers", out.num_layers);
  out.num_single_layers = c.count("num_single_layers", out.num_single_layers);
  out.attention_head_dim = c.size("attention_head_dim", out.attention_head_dim);
  out.num_attention_heads = c.size("num_attention_heads", out.num_attention_heads);
  out.joint_attention_dim = c.size("joint_attention_dim", out.joint_attention_dim);
  out.axes_dims_rope = c.sizes("axes_dims_rope", out.axes_dims_rope);
  out.rope_theta = c.number("rope_theta", out.rope_theta);
  out.eps = c.number("eps", out.eps);
  out.guidance_embeds = c.flag("guidance_embeds", out.guidance_embeds);
  double mlp_ratio = c.number("mlp_ratio", 3.0);
  if (!(mlp_ratio > 0 && mlp_ratio <= 64) || !(out.rope_theta > 0)) {
    fail(ErrorCode::kDataLoss, "{}: mlp_ratio {} and rope_theta {} make no sense", c.what(), mlp_ratio,
         out.rope_theta);
  }
  out.mlp_hidden_dim = static_cast<std::int64_t>(static_cast<double>(out.inner_dim()) * mlp_ratio);
  if (c.size("patch_size", 1) != 1 ||
      c.size("timestep_guidance_channels", nn::kTimeChannels) != nn::kTimeChannels) {
    fail(ErrorCode::kUnimplemented,
         "{}: only a patch_size of 1 and timestep_guidance_channels of {} are supported", c.what(),
         nn::kTimeChannels);
  }
  nn::check_rope_axes(out.axes_dims_rope, 4, out.attention_head_dim, c.what());
  if (out.in_channels % 4 != 0 || out.out_channels != out.in_channels || out.mlp_hidden_dim < 1) {
    fail(ErrorCode::kDataLoss,
         "{}: in_channels {} and out_channels {} must be one multiple of 4 (2 x 2 patches)", c.what(),
         out.in_channels, out.out_channels);
  }
  return out;
}

struct Flux2Transformer::TimeGuidanceEmbed {
  TimeGuidanceEmbed(const nn::Scope& scope, const Flux2TransformerConfig& c)
      : timestep_embedder(scope / "timestep_embedder", nn::kTimeChannels, c.inner_dim(), false) {
    if (c.guidance_embeds) {
      guidance_embedder.emplace(scope / "guidance_embedder", nn::kTimeChannels, c.inner_dim(), false);
    }
  }
  Tensor forward(const Tensor& timestep, const Tensor& guidance, DType dtype) const {
    Tensor time = nn::embed_thousandfold(timestep_embedder, timestep, dtype);
    return guidance_embedder && guidance
               ? ops::add(time, nn::embed_thousandfold(*guidance_embedder, guidance, dtype))
               : time;
  }
  nn::EmbeddingMlp timestep_embedder;
  std::optional<nn::EmbeddingMlp> guidance_embedder;
};

struct Flux2Transformer::DoubleBlock : nn::Located {
  struct Streams {
    Tensor image, text;
  };

  DoubleBlock(const nn::Scope& scope, const Flux2TransformerConfig& c)
      : Located(scope),
        norm1(scope / "norm1", c.inner_dim(), c.eps, false),
        norm1_context(scope / "norm1_context", c.inner_dim(), c.eps, false),
        norm2(scope / "norm2", c.inner_dim(), c.eps, false),
        norm2_context(scope / "norm2_context", c.inner_dim(), c.eps, false),
        image(projections_of(scope / "attn", c, false)),
        text(projections_of(scope / "attn", c, true)),
        to_out(scope / "attn" / "to_out" / 0, c.inner_dim(), c.inner_dim(), false),
        to_add_out(scope / "attn" / "to_add_out", c.inner_dim(), c.inner_dim(), false),
        ff(scope / "ff", c.inner_dim(), c.mlp_hidden_dim),
        ff_context(scope / "ff_context", c.inner_dim(), c.mlp_hidden_dim) {}

  // `i` and `t` modulate the attention and then the feed-forward of picture and text.
  Streams forward(const Streams& in, const std::vector<Modulation>& i, const std::vector<Modulation>& t,
                  const nn::RopeTables& rope, const nn::Observer& observe) const {
    enum { kAttention, kMlp };
    auto report = [&](std::string_view part, const Tensor& tensor) {
      if (observe) observe(fmt::format("{}.{}", *where(), part), tensor);
    };
    Tensor x = norm1(in.image), y = norm1_context(in.text);
    report("norm1", x);
    report("norm1_context", y);
    x = i[kAttention].apply(x);
    y = t[kAttention].apply(y);

    Tensor attended = nn::attend(nn::project_jointly(text, y, image, x, &rope));
    std::int64_t text_tokens = in.text.dim(1);
    Tensor image_out = to_out(ops::slice(attended, 1, text_tokens, attended.dim(1)));
    Tensor text_out = to_add_out(ops::slice(attended, 1, 0, text_tokens));
    report("attn.0", image_out);
    report("attn.1", text_out);

    Streams out;
    out.image = ops::gated_add(in.image, i[kAttention].gate, image_out);
    Tensor mlp = ff(i[kMlp].apply(norm2(out.image)));
    report("ff", mlp);
    out.image = ops::gated_add(out.image, i[kMlp].gate, mlp);

    out.text = ops::gated_add(in.text, t[kAttention].gate, text_out);
    Tensor context_mlp = ff_context(t[kMlp].apply(norm2_context(out.text)));
    report("ff_context", context_mlp);
    out.text = ops::gated_add(out.text, t[kMlp].gate, context_mlp);
    report("0", out.text);
    report("1", out.image);
    return out;
  }

  nn::LayerNorm norm1, norm1_context, norm2, norm2_context;
  nn::HeadProjections image, text;
  nn::Linear to_out, to_add_out;
  FeedForward ff, ff_context;
};

// Attention and feed-forward side by side: their inputs are one product, and so are their outputs.
struct Flux2Transformer::SingleBlock : nn::Located {
  SingleBlock(const nn::Scope& scope, const Flux2TransformerConfig& c)
      : Located(scope),
        norm(scope / "norm", c.inner_dim(), c.eps, false),
        norm_q(scope / "attn" / "norm_q", c.attention_head_dim, c.eps),
        norm_k(scope / "attn" / "norm_k", c.attention_head_dim, c.eps),
        to_qkv_mlp_proj(scope / "attn" / "to_qkv_mlp_proj", c.inner_dim(),
                        3 * c.inner_dim() + 2 * c.mlp_hidden_dim, false),
        to_out(scope / "attn" / "to_out", c.inner_dim() + c.mlp_hidden_dim, c.inner_dim(), false),
        head_dim(c.attention_head_dim),
        inner_dim(c.inner_dim() / scope.ranks()) {}

  // x is [B, text and picture, dim].
  Tensor forward(const Tensor& x, const Modulation& modulation, const nn::RopeTables& rope) const {
    Tensor h = to_qkv_mlp_proj(modulation.apply(norm(x)));
    auto part = [&](std::int64_t i) {
      return nn::split_heads(ops::slice(h, 2, i * inner_dim, (i + 1) * inner_dim), head_dim);
    };
    auto rotated = [&](std::int64_t i, const nn::RmsNorm& head_norm) {
      return nn::norm_and_rotate(std::array{part(i)}, std::array{&head_norm}, &rope);
    };
    Tensor attended = nn::attend({rotated(0, norm_q), rotated(1, norm_k), part(2)});
    Tensor mlp = swiglu(ops::slice(h, 2, 3 * inner_dim, h.dim(2)));
    return ops::gated_add(x, modulation.gate, to_out(ops::concatenate({attended, mlp}, 2)));
  }

  nn::LayerNorm norm;
  nn::RmsNorm norm_q, norm_k;
  nn::Linear to_qkv_mlp_proj, to_out;
  std::int64_t head_dim, inner_dim;  // the latter a rank's
};

nn::TensorParallelPlan Flux2Transformer::tensor_parallel_plan(const Flux2TransformerConfig& c) {
  nn::TensorParallelPlan plan;
  std::int64_t heads = c.num_attention_heads, head_dim = c.attention_head_dim, dim = c.inner_dim();
  nn::PackedPart attention{dim, heads}, mlp{c.mlp_hidden_dim, c.mlp_hidden_dim};
  if (c.num_layers > 0) {
    std::string block = "transformer_blocks.*.";
    nn::share_projections(plan, block + "attn", heads, head_dim, /*added=*/false);
    nn::share_projections(plan, block + "attn", heads, head_dim, /*added=*/true);
    nn::share_output(plan, block + "attn.to_out.0", heads, head_dim);
    nn::share_output(plan, block + "attn.to_add_out", heads, head_dim);
    for (const char* ff : {"ff", "ff_context"}) {
      plan.add(block + ff + ".linear_in", nn::packed_colwise({mlp, mlp}));
      plan.add(block + ff + ".linear_out", nn::rowwise(c.mlp_hidden_dim));
    }
  }
  if (c.num_single_layers > 0) {
    std::string block = "single_transformer_blocks.*.attn.";
    plan.add(block + "to_qkv_mlp_proj", nn::packed_colwise({attention, attention, attention, mlp, mlp}));
    plan.add(block + "to_out", nn::packed_rowwise({attention, mlp}));
  }
  return plan;
}

Flux2Transformer::Flux2Transformer(const Flux2TransformerConfig& config, const nn::Scope& scope)
    : Module("Flux2Transformer2DModel"), config_(config) {
  std::int64_t dim = config.inner_dim();
  auto linear = [&](const nn::Scope& at, std::int64_t in, std::int64_t out) {
    return std::make_unique<nn::Linear>(at, in, out, false);
  };
  x_embedder_ = linear(scope / "x_embedder", config.in_channels, dim);
  context_embedder_ = linear(scope / "context_embedder", config.joint_attention_dim, dim);
  time_guidance_embed_ = std::make_unique<TimeGuidanceEmbed>(scope / "time_guidance_embed", config);
  modulation_image_ = linear(scope / "double_stream_modulation_img" / "linear", dim, 6 * dim);
  modulation_text_ = linear(scope / "double_stream_modulation_txt" / "linear", dim, 6 * dim);
  modulation_single_ = linear(scope / "single_stream_modulation" / "linear", dim, 3 * dim);
  for (int i = 0; i < config.num_layers; ++i)
    double_blocks_.emplace_back(scope / "transformer_blocks" / i, config);
  for (int i = 0; i < config.num_single_layers; ++i) {
    single_blocks_.emplace_back(scope / "single_transformer_blocks" / i, config);
  }
  norm_out_ = std::make_unique<nn::AdaptiveNormContinuous>(scope / "norm_out", dim, config.eps, false);
  proj_out_ = linear(scope / "proj_out", dim, config.out_channels);
}

Flux2Transformer::~Flux2Transformer() = default;

nn::RopeTables Flux2Transformer::rope_tables(Context& context, const graph::MeshPtr& mesh,
                                             std::int64_t text_tokens, std::int64_t rows,
                                             std::int64_t columns) const {
  std::vector<double> positions;
  for (std::int64_t t = 0; t < text_tokens; ++t) {
    positions.insert(positions.end(), {0.0, 0.0, 0.0, static_cast<double>(t)});
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      positions.insert(positions.end(), {0.0, static_cast<double>(r), static_cast<double>(c), 0.0});
    }
  }
  return nn::rope_tables(context, mesh, positions, config_.axes_dims_rope, config_.rope_theta);
}

Tensor Flux2Transformer::forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                                 const Tensor& timestep, const Tensor& guidance, const nn::RopeTables& rope,
                                 const nn::Observer& observe) const {
  return call([&] { return run(hidden_states, encoder_hidden_states, timestep, guidance, rope, observe); });
}

Tensor Flux2Transformer::run(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                             const Tensor& timestep, const Tensor& guidance, const nn::RopeTables& rope,
                             const nn::Observer& observe) const {
  auto report = [&](const std::string& name, const Tensor& t) {
    if (observe) observe(name, t);
  };
  Tensor temb = time_guidance_embed_->forward(timestep, guidance, hidden_states.dtype());
  Tensor active = ops::silu(temb);
  Tensor image = (*modulation_image_)(active), text = (*modulation_text_)(active),
         single = (*modulation_single_)(active);
  DoubleBlock::Streams streams{(*x_embedder_)(hidden_states), (*context_embedder_)(encoder_hidden_states)};
  report("time_guidance_embed", temb);
  report("double_stream_modulation_img", image);
  report("double_stream_modulation_txt", text);
  report("single_stream_modulation", single);
  report("x_embedder", streams.image);
  report("context_embedder", streams.text);

  std::vector<Modulation> i = split_modulation(image, 2), t = split_modulation(text, 2),
                          s = split_modulation(single, 1);
  for (const DoubleBlock& layer : double_blocks_)
    block(layer.where(), [&] { streams = layer.forward(streams, i, t, rope, observe); });
  Tensor both = ops::concatenate({streams.text, streams.image}, 1);
  for (const SingleBlock& layer : single_blocks_) {
    block(layer.where(), [&] { both = layer.forward(both, s[0], rope); });
    report(*layer.where(), both);
  }
  Tensor hidden = ops::slice(both, 1, streams.text.dim(1), both.dim(1));
  hidden = (*norm_out_)(hidden, temb);
  report("norm_out", hidden);
  hidden = (*proj_out_)(hidden);
  report("proj_out", hidden);
  return hidden;
}

}  // namespace tessera::models
