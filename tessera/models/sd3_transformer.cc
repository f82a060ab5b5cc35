#include "tessera/models/sd3_transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/ops/ops.h"

namespace tessera::models {
namespace {

constexpr double kNormEps = 1e-6;

nn::HeadProjections projections_of(const nn::Scope& scope, const Sd3TransformerConfig& c, bool added) {
  return {scope, c.num_attention_heads, c.attention_head_dim, added,
          c.qk_norm ? std::optional(kNormEps) : std::nullopt};
}

}  // namespace

Sd3TransformerConfig Sd3TransformerConfig::from_json(const nn::Config& c) {
  Sd3TransformerConfig out;
  out.sample_size = c.size("sample_size", out.sample_size);
  out.patch_size = c.size("patch_size", out.patch_size);
  out.in_channels = c.size("in_channels", out.in_channels);
  out.out_channels = c.size("out_channels", out.in_channels);
  out.num_layers = c.count("num_layers", out.num_layers);
  out.attention_head_dim = c.size("attention_head_dim", out.attention_head_dim);
  out.num_attention_heads = c.size("num_attention_heads", out.num_attention_heads);
  out.joint_attention_dim = c.size("joint_attention_dim", out.joint_attention_dim);
  out.pooled_projection_dim = c.size("pooled_projection_dim", out.pooled_projection_dim);
  out.pos_embed_max_size = c.count("pos_embed_max_size", out.pos_embed_max_size);
  out.dual_attention_layers = c.indices("dual_attention_layers", out.num_layers, std::vector<std::int64_t>{});
  std::string qk_norm = c.text("qk_norm", "");
  if (!qk_norm.empty() && qk_norm != "rms_norm") {
    fail(ErrorCode::kUnimplemented, "{}: qk_norm '{}' is not supported; supported: rms_norm, or none",
         c.what(), qk_norm);
  }
  out.qk_norm = !qk_norm.empty();
  if (std::int64_t caption = c.size("caption_projection_dim", 1152); caption != out.inner_dim()) {
    fail(ErrorCode::kDataLoss, "{}: caption_projection_dim {} differs from {} heads of {}", c.what(), caption,
         out.num_attention_heads, out.attention_head_dim);
  }
  return out;
}

struct Sd3Transformer::Block : nn::Located {
  // `text_ends`: the text is read but not carried on.
  Block(const nn::Scope& scope, const Sd3TransformerConfig& c, bool dual, bool text_ends)
      : Located(scope),
        norm1(scope / "norm1", c.inner_dim(), dual ? 9 : 6, kNormEps),
        image(projections_of(scope / "attn", c, false)),
        text(projections_of(scope / "attn", c, true)),
        to_out(scope / "attn" / "to_out" / 0, c.inner_dim(), c.inner_dim()),
        norm2(scope / "norm2", c.inner_dim(), kNormEps, false),
        ff(scope / "ff", c.inner_dim()) {
    if (dual) {
      image_alone.emplace(projections_of(scope / "attn2", c, false));
      to_out_alone.emplace(scope / "attn2" / "to_out" / 0, c.inner_dim(), c.inner_dim());
    }
    if (text_ends) {
      last_norm1_context.emplace(scope / "norm1_context", c.inner_dim(), kNormEps);
    } else {
      norm1_context.emplace(scope / "norm1_context", c.inner_dim(), 6, kNormEps);
      to_add_out.emplace(scope / "attn" / "to_add_out", c.inner_dim(), c.inner_dim());
      norm2_context.emplace(scope / "norm2_context", c.inner_dim(), kNormEps, false);
      ff_context.emplace(scope / "ff_context", c.inner_dim());
    }
  }

  struct Streams {
    Tensor image, text;  // no text after the last block
  };
  enum { kShiftAttention, kScaleAttention, kGateAttention, kShiftMlp, kScaleMlp, kGateMlp };
  enum { kShiftAlone = 6, kScaleAlone, kGateAlone };

  Streams forward(const Tensor& hidden, const Tensor& encoder, const Tensor& temb,
                  const nn::Observer& observe) const {
    auto report = [&](std::string_view part, const Tensor& t) {
      if (observe) observe(fmt::format("{}.{}", *where(), part), t);
    };
    std::vector<Tensor> i = norm1.condition(temb), t;
    Tensor normed = norm1.norm(hidden);
    Tensor x = ops::modulate(normed, i[kShiftAttention], i[kScaleAttention]), x_alone, y;
    std::vector<Tensor> image_norm{x, i[kGateAttention], i[kShiftMlp], i[kScaleMlp], i[kGateMlp]};
    if (image_alone) {
      x_alone = ops::modulate(normed, i[kShiftAlone], i[kScaleAlone]);
      image_norm.insert(image_norm.end(), {x_alone, i[kGateAlone]});
    }
    report_all(observe, "norm1", image_norm);
    if (norm1_context) {
      t = norm1_context->condition(temb);
      y = ops::modulate(norm1_context->norm(encoder), t[kShiftAttention], t[kScaleAttention]);
      report_all(observe, "norm1_context", {y, t[kGateAttention], t[kShiftMlp], t[kScaleMlp], t[kGateMlp]});
    } else {
      y = (*last_norm1_context)(encoder, temb);
    }

    Streams attended = attend_together(x, y);
    report("attn.0", attended.image);
    Streams out{ops::gated_add(hidden, i[kGateAttention], attended.image), {}};
    if (image_alone) {
      Tensor alone = (*to_out_alone)(nn::attend((*image_alone)(x_alone)));
      report("attn2", alone);
      out.image = ops::gated_add(out.image, i[kGateAlone], alone);
    }
    Tensor mlp = ff(ops::modulate(norm2(out.image), i[kShiftMlp], i[kScaleMlp]));
    report("ff", mlp);
    out.image = ops::gated_add(out.image, i[kGateMlp], mlp);

    if (!norm1_context) {
      if (observe) observe(*where(), out.image);
      return out;
    }
    report("attn.1", attended.text);
    out.text = ops::gated_add(encoder, t[kGateAttention], attended.text);
    Tensor context_mlp = (*ff_context)(ops::modulate((*norm2_context)(out.text), t[kShiftMlp], t[kScaleMlp]));
    report("ff_context", context_mlp);
    out.text = ops::gated_add(out.text, t[kGateMlp], context_mlp);
    report("0", out.text);
    report("1", out.image);
    return out;
  }

  // Picture before text. Where the text ends here, nothing asks on its behalf.
  Streams attend_together(const Tensor& x, const Tensor& y) const {
    Tensor attended = nn::attend(nn::project_jointly(image, x, text, y, nullptr, to_add_out.has_value()));
    if (!to_add_out) return {to_out(attended), {}};
    std::int64_t image_tokens = x.dim(1);
    return {to_out(ops::slice(attended, 1, 0, image_tokens)),
            (*to_add_out)(ops::slice(attended, 1, image_tokens, attended.dim(1)))};
  }

  void report_all(const nn::Observer& observe, std::string_view module,
                  const std::vector<Tensor>& outputs) const {
    if (!observe) return;
    for (std::size_t n = 0; n < outputs.size(); ++n)
      observe(fmt::format("{}.{}.{}", *where(), module, n), outputs[n]);
  }

  nn::AdaptiveNorm norm1;
  std::optional<nn::AdaptiveNorm> norm1_context;
  std::optional<nn::AdaptiveNormContinuous> last_norm1_context;
  nn::HeadProjections image, text;
  nn::Linear to_out;
  std::optional<nn::Linear> to_add_out;
  std::optional<nn::HeadProjections> image_alone;
  std::optional<nn::Linear> to_out_alone;
  nn::LayerNorm norm2;
  std::optional<nn::LayerNorm> norm2_context;
  nn::GeluFeedForward ff;
  std::optional<nn::GeluFeedForward> ff_context;
};

nn::TensorParallelPlan Sd3Transformer::tensor_parallel_plan(const Sd3TransformerConfig& c) {
  nn::TensorParallelPlan plan;
  std::int64_t heads = c.num_attention_heads, head_dim = c.attention_head_dim;
  std::string block = "transformer_blocks.*.";
  nn::share_projections(plan, block + "attn", heads, head_dim, /*added=*/false);
  nn::share_projections(plan, block + "attn", heads, head_dim, /*added=*/true);
  nn::share_output(plan, block + "attn.to_out.0", heads, head_dim);
  nn::share_feed_forward(plan, block + "ff", c.inner_dim());
  if (c.num_layers > 1) {  // the last block does not carry the text on
    nn::share_output(plan, block + "attn.to_add_out", heads, head_dim);
    nn::share_feed_forward(plan, block + "ff_context", c.inner_dim());
  }
  if (!c.dual_attention_layers.empty()) {
    nn::share_projections(plan, block + "attn2", heads, head_dim, /*added=*/false);
    nn::share_output(plan, block + "attn2.to_out.0", heads, head_dim);
  }
  return plan;
}

Sd3Transformer::Sd3Transformer(const Sd3TransformerConfig& config, const nn::Scope& scope)
    : Module("SD3Transformer2DModel"), config_(config) {
  std::int64_t dim = config.inner_dim(), patch = config.patch_size, table = config.pos_embed_max_size;
  nn::Scope pos_embed = scope / "pos_embed";
  patch_proj_ = std::make_unique<nn::Conv2d>(pos_embed / "proj", config.in_channels, dim,
                                             static_cast<int>(patch), static_cast<int>(patch), 0);
  pos_embed_ = pos_embed.parameter("pos_embed", {1, table * table, dim});
  nn::Scope embed = scope / "time_text_embed";
  timestep_embedder_ =
      std::make_unique<nn::EmbeddingMlp>(embed / "timestep_embedder", nn::kTimeChannels, dim);
  text_embedder_ =
      std::make_unique<nn::EmbeddingMlp>(embed / "text_embedder", config.pooled_projection_dim, dim);
  context_embedder_ =
      std::make_unique<nn::Linear>(scope / "context_embedder", config.joint_attention_dim, dim);
  for (int i = 0; i < config.num_layers; ++i) {
    bool dual = std::ranges::find(config.dual_attention_layers, i) != config.dual_attention_layers.end();
    blocks_.emplace_back(scope / "transformer_blocks" / i, config, dual, i + 1 == config.num_layers);
  }
  norm_out_ = std::make_unique<nn::AdaptiveNormContinuous>(scope / "norm_out", dim, kNormEps);
  proj_out_ = std::make_unique<nn::Linear>(scope / "proj_out", dim, patch * patch * config.out_channels);
}

Sd3Transformer::~Sd3Transformer() = default;

// A token for each patch, with the position's row of the middle of the table.
Tensor Sd3Transformer::embed_patches(const Tensor& latents) const {
  std::int64_t rows = latents.dim(2) / config_.patch_size, columns = latents.dim(3) / config_.patch_size;
  std::int64_t table = config_.pos_embed_max_size, dim = config_.inner_dim();
  if (rows > table || columns > table || latents.dim(2) % config_.patch_size != 0 ||
      latents.dim(3) % config_.patch_size != 0) {
    invalid_argument("latents {} do not divide into at most {} x {} patches of {} x {}",
                     to_string(latents.shape()), table, table, config_.patch_size, config_.patch_size);
  }
  Tensor patches = ops::reshape((*patch_proj_)(latents), {latents.dim(0), dim, rows * columns});
  std::int64_t top = (table - rows) / 2, left = (table - columns) / 2;
  Tensor positions = ops::reshape(pos_embed_.tensor(), {1, table, table, dim});
  positions = ops::slice(ops::slice(positions, 1, top, top + rows), 2, left, left + columns);
  return ops::add(ops::transpose(patches, {0, 2, 1}), ops::reshape(positions, {1, rows * columns, dim}));
}

// Tokens of (row, column, channel) within their patches -> [B, out_channels, H, W].
Tensor Sd3Transformer::unpatchify(const Tensor& tokens, std::int64_t rows, std::int64_t columns) const {
  std::int64_t b = tokens.dim(0), p = config_.patch_size, c = config_.out_channels;
  Tensor patches = ops::reshape(tokens, {b, rows, columns, p, p, c});
  return ops::reshape(ops::transpose(patches, {0, 5, 1, 3, 2, 4}), {b, c, rows * p, columns * p});
}

Tensor Sd3Transformer::forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                               const Tensor& pooled_projections, const Tensor& timestep,
                               std::span<const int> skip_layers, const nn::Observer& observe) const {
  return call([&] {
    return run(hidden_states, encoder_hidden_states, pooled_projections, timestep, skip_layers, observe);
  });
}

Tensor Sd3Transformer::run(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                           const Tensor& pooled_projections, const Tensor& timestep,
                           std::span<const int> skip_layers, const nn::Observer& observe) const {
  auto report = [&](const std::string& name, const Tensor& t) {
    if (observe) observe(name, t);
  };
  Tensor hidden = embed_patches(hidden_states);
  Tensor temb = ops::add(nn::embed_time(*timestep_embedder_, timestep, pooled_projections.dtype()),
                         (*text_embedder_)(pooled_projections));
  Tensor encoder = (*context_embedder_)(encoder_hidden_states);
  report("pos_embed", hidden);
  report("time_text_embed", temb);
  report("context_embedder", encoder);

  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (std::ranges::find(skip_layers, static_cast<int>(i)) != skip_layers.end()) continue;
    const Block& layer = blocks_[i];
    block(layer.where(), [&] {
      Block::Streams out = layer.forward(hidden, encoder, temb, observe);
      hidden = std::move(out.image);
      encoder = std::move(out.text);
    });
  }
  hidden = (*norm_out_)(hidden, temb);
  report("norm_out", hidden);
  hidden = (*proj_out_)(hidden);
  report("proj_out", hidden);
  return unpatchify(hidden, hidden_states.dim(2) / config_.patch_size,
                    hidden_states.dim(3) / config_.patch_size);
}

}  // namespace tessera::models
