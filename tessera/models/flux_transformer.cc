#include "tessera/models/flux_transformer.h"

#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/ops/ops.h"

namespace tessera::models {
namespace {

constexpr double kNormEps = 1e-6;
constexpr double kRopeTheta = 10000;

nn::HeadProjections projections_of(const nn::Scope& scope, const FluxTransformerConfig& c, bool added) {
  return {scope, c.num_attention_heads, c.attention_head_dim, added, kNormEps};
}

}  // namespace

FluxTransformerConfig FluxTransformerConfig::from_json(const nn::Config& c) {
  FluxTransformerConfig out;
  out.in_channels = c.size("in_channels", out.in_channels);
  out.out_channels = c.size("out_channels", out.in_channels);
  out.num_layers = c.count("num_layers", out.num_layers);
  out.num_single_layers = c.count("num_single_layers", out.num_single_layers);
  out.attention_head_dim = c.size("attention_head_dim", out.attention_head_dim);
  out.num_attention_heads = c.size("num_attention_heads", out.num_attention_heads);
  out.joint_attention_dim = c.size("joint_attention_dim", out.joint_attention_dim);
  out.pooled_projection_dim = c.size("pooled_projection_dim", out.pooled_projection_dim);
  out.guidance_embeds = c.flag("guidance_embeds", out.guidance_embeds);
  out.axes_dims_rope = c.sizes("axes_dims_rope", out.axes_dims_rope);
  if (c.size("patch_size", 1) != 1)
    fail(ErrorCode::kUnimplemented, "{}: only a patch_size of 1 is supported", c.what());
  nn::check_rope_axes(out.axes_dims_rope, 3, out.attention_head_dim, c.what());
  if (out.in_channels % 4 != 0) {
    fail(ErrorCode::kDataLoss, "{}: in_channels {} is no multiple of 4 (2 x 2 patches)", c.what(),
         out.in_channels);
  }
  return out;
}

struct FluxTransformer::TimeTextEmbed {
  TimeTextEmbed(const nn::Scope& scope, const FluxTransformerConfig& c)
      : timestep_embedder(scope / "timestep_embedder", nn::kTimeChannels, c.inner_dim()),
        text_embedder(scope / "text_embedder", c.pooled_projection_dim, c.inner_dim()) {
    if (c.guidance_embeds) {
      guidance_embedder =
          std::make_unique<nn::EmbeddingMlp>(scope / "guidance_embedder", nn::kTimeChannels, c.inner_dim());
    }
  }
  Tensor forward(const Tensor& timestep, const Tensor& guidance, const Tensor& pooled) const {
    Tensor time = nn::embed_thousandfold(timestep_embedder, timestep, pooled.dtype());
    if (guidance_embedder)
      time = ops::add(time, nn::embed_thousandfold(*guidance_embedder, guidance, pooled.dtype()));
    return ops::add(time, text_embedder(pooled));
  }
  nn::EmbeddingMlp timestep_embedder, text_embedder;
  std::unique_ptr<nn::EmbeddingMlp> guidance_embedder;
};

struct FluxTransformer::DoubleBlock : nn::Located {
  DoubleBlock(const nn::Scope& scope, const FluxTransformerConfig& c)
      : Located(scope),
        norm1(scope / "norm1", c.inner_dim(), 6, kNormEps),
        norm1_context(scope / "norm1_context", c.inner_dim(), 6, kNormEps),
        image(projections_of(scope / "attn", c, false)),
        text(projections_of(scope / "attn", c, true)),
        to_out(scope / "attn" / "to_out" / 0, c.inner_dim(), c.inner_dim()),
        to_add_out(scope / "attn" / "to_add_out", c.inner_dim(), c.inner_dim()),
        norm2(scope / "norm2", c.inner_dim(), kNormEps, false),
        norm2_context(scope / "norm2_context", c.inner_dim(), kNormEps, false),
        ff(scope / "ff", c.inner_dim()),
        ff_context(scope / "ff_context", c.inner_dim()) {}

  void forward(Tensor& hidden, Tensor& encoder, const Tensor& temb, const nn::RopeTables& rope,
               const nn::Observer& observe) const {
    enum { kShiftAttention, kScaleAttention, kGateAttention, kShiftMlp, kScaleMlp, kGateMlp };
    auto report = [&](std::string_view part, const Tensor& t) {
      if (observe) observe(fmt::format("{}.{}", *where(), part), t);
    };
    // The norm's outputs in Diffusers' order.
    auto report_norm = [&](std::string_view norm, const Tensor& out, const std::vector<Tensor>& c) {
      if (!observe) return;
      int part = 0;
      for (const Tensor* tensor : {&out, &c[kGateAttention], &c[kShiftMlp], &c[kScaleMlp], &c[kGateMlp]})
        report(fmt::format("{}.{}", norm, part++), *tensor);
    };
    std::vector<Tensor> i = norm1.condition(temb), t = norm1_context.condition(temb);
    Tensor x = ops::modulate(norm1.norm(hidden), i[kShiftAttention], i[kScaleAttention]);
    Tensor y = ops::modulate(norm1_context.norm(encoder), t[kShiftAttention], t[kScaleAttention]);
    report_norm("norm1", x, i);
    report_norm("norm1_context", y, t);

    Tensor attended = nn::attend(nn::project_jointly(text, y, image, x, &rope));
    std::int64_t text_tokens = encoder.dim(1);
    Tensor image_out = to_out(ops::slice(attended, 1, text_tokens, attended.dim(1)));
    Tensor text_out = to_add_out(ops::slice(attended, 1, 0, text_tokens));
    report("attn.0", image_out);
    report("attn.1", text_out);

    hidden = ops::gated_add(hidden, i[kGateAttention], image_out);
    Tensor mlp = ff(ops::modulate(norm2(hidden), i[kShiftMlp], i[kScaleMlp]));
    report("ff", mlp);
    hidden = ops::gated_add(hidden, i[kGateMlp], mlp);

    encoder = ops::gated_add(encoder, t[kGateAttention], text_out);
    Tensor context_mlp = ff_context(ops::modulate(norm2_context(encoder), t[kShiftMlp], t[kScaleMlp]));
    report("ff_context", context_mlp);
    encoder = ops::gated_add(encoder, t[kGateMlp], context_mlp);
    report("0", encoder);
    report("1", hidden);
  }

  nn::AdaptiveNorm norm1, norm1_context;
  nn::HeadProjections image, text;
  nn::Linear to_out, to_add_out;
  nn::LayerNorm norm2, norm2_context;
  nn::GeluFeedForward ff, ff_context;
};

struct FluxTransformer::SingleBlock : nn::Located {
  SingleBlock(const nn::Scope& scope, const FluxTransformerConfig& c)
      : Located(scope),
        norm(scope / "norm", c.inner_dim(), 3, kNormEps),
        projections(projections_of(scope / "attn", c, false)),
        proj_mlp(scope / "proj_mlp", c.inner_dim(), 4 * c.inner_dim()),
        proj_out(scope / "proj_out", 5 * c.inner_dim(), c.inner_dim()) {}

  // x is [B, text and picture, dim].
  Tensor forward(const Tensor& x, const Tensor& temb, const nn::RopeTables& rope) const {
    enum { kShift, kScale, kGate };
    std::vector<Tensor> c = norm.condition(temb);
    Tensor h = ops::modulate(norm.norm(x), c[kShift], c[kScale]);
    Tensor mlp = ops::gelu_tanh(proj_mlp(h));
    Tensor attended = nn::attend(projections(h, &rope));
    return ops::gated_add(x, c[kGate], proj_out(ops::concatenate({attended, mlp}, 2)));
  }

  nn::AdaptiveNorm norm;
  nn::HeadProjections projections;
  nn::Linear proj_mlp, proj_out;
};

nn::TensorParallelPlan FluxTransformer::tensor_parallel_plan(const FluxTransformerConfig& c) {
  nn::TensorParallelPlan plan;
  std::int64_t heads = c.num_attention_heads, head_dim = c.attention_head_dim, dim = c.inner_dim();
  if (c.num_layers > 0) {
    std::string block = "transformer_blocks.*.";
    nn::share_projections(plan, block + "attn", heads, head_dim, /*added=*/false);
    nn::share_projections(plan, block + "attn", heads, head_dim, /*added=*/true);
    nn::share_output(plan, block + "attn.to_out.0", heads, head_dim);
    nn::share_output(plan, block + "attn.to_add_out", heads, head_dim);
    nn::share_feed_forward(plan, block + "ff", dim);
    nn::share_feed_forward(plan, block + "ff_context", dim);
  }
  if (c.num_single_layers > 0) {
    std::string block = "single_transformer_blocks.*.";
    nn::share_projections(plan, block + "attn", heads, head_dim, /*added=*/false);
    plan.add(block + "proj_mlp", nn::colwise(4 * dim));
    plan.add(block + "proj_out", nn::packed_rowwise({{dim, heads}, {4 * dim, 4 * dim}}));
  }
  return plan;
}

FluxTransformer::FluxTransformer(const FluxTransformerConfig& config, const nn::Scope& scope)
    : Module("FluxTransformer2DModel"), config_(config) {
  std::int64_t dim = config.inner_dim();
  x_embedder_ = std::make_unique<nn::Linear>(scope / "x_embedder", config.in_channels, dim);
  context_embedder_ =
      std::make_unique<nn::Linear>(scope / "context_embedder", config.joint_attention_dim, dim);
  time_text_embed_ = std::make_unique<TimeTextEmbed>(scope / "time_text_embed", config);
  for (int i = 0; i < config.num_layers; ++i)
    double_blocks_.emplace_back(scope / "transformer_blocks" / i, config);
  for (int i = 0; i < config.num_single_layers; ++i) {
    single_blocks_.emplace_back(scope / "single_transformer_blocks" / i, config);
  }
  norm_out_ = std::make_unique<nn::AdaptiveNormContinuous>(scope / "norm_out", dim, kNormEps);
  proj_out_ = std::make_unique<nn::Linear>(scope / "proj_out", dim, config.out_channels);
}

FluxTransformer::~FluxTransformer() = default;

nn::RopeTables FluxTransformer::rope_tables(Context& context, const graph::MeshPtr& mesh,
                                            std::int64_t text_tokens, std::int64_t rows,
                                            std::int64_t columns) const {
  std::vector<double> positions(static_cast<std::size_t>(3 * text_tokens), 0.0);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      positions.insert(positions.end(), {0.0, static_cast<double>(r), static_cast<double>(c)});
    }
  }
  return nn::rope_tables(context, mesh, positions, config_.axes_dims_rope, kRopeTheta);
}

Tensor FluxTransformer::forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                                const Tensor& pooled_projections, const Tensor& timestep,
                                const Tensor& guidance, const nn::RopeTables& rope,
                                const nn::Observer& observe) const {
  if (config_.guidance_embeds && !guidance) invalid_argument("this transformer wants a guidance [B]");
  return call([&] {
    return run(hidden_states, encoder_hidden_states, pooled_projections, timestep, guidance, rope, observe);
  });
}

Tensor FluxTransformer::run(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                            const Tensor& pooled_projections, const Tensor& timestep, const Tensor& guidance,
                            const nn::RopeTables& rope, const nn::Observer& observe) const {
  auto report = [&](const std::string& name, const Tensor& t) {
    if (observe) observe(name, t);
  };
  Tensor hidden = (*x_embedder_)(hidden_states);
  Tensor temb = time_text_embed_->forward(timestep, guidance, pooled_projections);
  Tensor encoder = (*context_embedder_)(encoder_hidden_states);
  report("x_embedder", hidden);
  report("time_text_embed", temb);
  report("context_embedder", encoder);

  for (const DoubleBlock& layer : double_blocks_)
    block(layer.where(), [&] { layer.forward(hidden, encoder, temb, rope, observe); });
  std::int64_t text_tokens = encoder.dim(1);
  Tensor both = ops::concatenate({encoder, hidden}, 1);
  for (const SingleBlock& layer : single_blocks_) {
    block(layer.where(), [&] { both = layer.forward(both, temb, rope); });
    if (observe) {
      report(*layer.where() + ".0", ops::slice(both, 1, 0, text_tokens));
      report(*layer.where() + ".1", ops::slice(both, 1, text_tokens, both.dim(1)));
    }
  }
  hidden = ops::slice(both, 1, text_tokens, both.dim(1));

  hidden = (*norm_out_)(hidden, temb);
  report("norm_out", hidden);
  hidden = (*proj_out_)(hidden);
  report("proj_out", hidden);
  return hidden;
}

}  // namespace tessera::models
