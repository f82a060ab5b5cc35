#include "tessera/models/autoencoder_kl.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/base/error.h"
#include "tessera/ops/ops.h"

namespace tessera::models {
namespace {

constexpr double kNormEps = 1e-6;

}  // namespace

AutoencoderKlConfig AutoencoderKlConfig::from_json(const nn::Config& c) {
  AutoencoderKlConfig out;
  out.read(c);
  return out;
}

void AutoencoderKlConfig::read(const nn::Config& c) {
  latent_channels = c.size("latent_channels", latent_channels);
  out_channels = c.size("out_channels", out_channels);
  layers_per_block = c.count("layers_per_block", layers_per_block);
  norm_num_groups = c.size("norm_num_groups", norm_num_groups);
  block_out_channels = c.sizes("block_out_channels", block_out_channels);
  decoder_block_out_channels = c.sizes("decoder_block_out_channels", decoder_block_out_channels);
  scaling_factor = c.number("scaling_factor", scaling_factor);
  shift_factor = c.number("shift_factor", shift_factor);
  use_post_quant_conv = c.flag("use_post_quant_conv", use_post_quant_conv);
  mid_block_add_attention = c.flag("mid_block_add_attention", mid_block_add_attention);
  if (std::string act = c.text("act_fn", "silu"); act != "silu") {
    fail(ErrorCode::kUnimplemented, "{}: act_fn '{}' is not supported; supported: silu", c.what(), act);
  }
  if (out_channels != 3) {
    fail(ErrorCode::kUnimplemented, "{}: {} output channels are not supported; supported: 3", c.what(),
         out_channels);
  }
  if (scaling_factor == 0) fail(ErrorCode::kDataLoss, "{}: scaling_factor is 0", c.what());
  if (block_out_channels.size() > 8) {
    fail(ErrorCode::kDataLoss, "{}: {} levels in block_out_channels", c.what(), block_out_channels.size());
  }
  if (!decoder_block_out_channels.empty() && decoder_block_out_channels.size() != block_out_channels.size()) {
    fail(ErrorCode::kDataLoss, "{}: {} levels in decoder_block_out_channels, {} in block_out_channels",
         c.what(), decoder_block_out_channels.size(), block_out_channels.size());
  }
  for (std::int64_t channels : decoder_channels()) {
    if (channels % norm_num_groups != 0) {
      fail(ErrorCode::kDataLoss, "{}: {} channels do not divide into {} groups", c.what(), channels,
           norm_num_groups);
    }
  }
}

struct AutoencoderKlDecoder::ResnetBlock {
  ResnetBlock(const nn::Scope& scope, std::int64_t in, std::int64_t out, std::int64_t groups)
      : norm1(scope / "norm1", in, static_cast<int>(groups), kNormEps),
        norm2(scope / "norm2", out, static_cast<int>(groups), kNormEps),
        conv1(scope / "conv1", in, out, 3, 1, 1),
        conv2(scope / "conv2", out, out, 3, 1, 1) {
    if (in != out) conv_shortcut = std::make_unique<nn::Conv2d>(scope / "conv_shortcut", in, out, 1, 1, 0);
  }

  Tensor forward(const Tensor& x) const {
    Tensor h = conv1(ops::silu(norm1(x)));
    h = conv2(ops::silu(norm2(h)));
    return ops::add(conv_shortcut ? (*conv_shortcut)(x) : x, h);
  }

  nn::GroupNorm norm1, norm2;
  nn::Conv2d conv1, conv2;
  std::unique_ptr<nn::Conv2d> conv_shortcut;
};

// Self-attention of all pixels, with one head as wide as the channels.
struct AutoencoderKlDecoder::AttentionBlock {
  AttentionBlock(const nn::Scope& scope, std::int64_t channels, std::int64_t groups)
      : group_norm(scope / "group_norm", channels, static_cast<int>(groups), kNormEps),
        to_q(scope / "to_q", channels, channels),
        to_k(scope / "to_k", channels, channels),
        to_v(scope / "to_v", channels, channels),
        to_out(scope / "to_out" / 0, channels, channels) {}

  Tensor forward(const Tensor& x) const {
    std::int64_t n = x.dim(0), c = x.dim(1), h = x.dim(2), w = x.dim(3);
    Tensor pixels = ops::transpose(ops::reshape(group_norm(x), {n, c, h * w}), {0, 2, 1});
    Tensor y =
        ops::attention(nn::split_heads(to_q(pixels), c), nn::split_heads(to_k(pixels), c),
                       nn::split_heads(to_v(pixels), c), {}, 1.0 / std::sqrt(static_cast<double>(c)), false);
    y = to_out(nn::merge_heads(y));
    return ops::add(ops::reshape(ops::transpose(y, {0, 2, 1}), {n, c, h, w}), x);
  }

  nn::GroupNorm group_norm;
  nn::Linear to_q, to_k, to_v, to_out;
};

struct AutoencoderKlDecoder::UpBlock {
  UpBlock(const nn::Scope& scope, std::int64_t in, std::int64_t out, std::int64_t layers, std::int64_t groups,
          bool upsample) {
    for (int i = 0; i < layers; ++i)
      resnets.emplace_back(scope / "resnets" / i, i == 0 ? in : out, out, groups);
    if (upsample)
      upsampler = std::make_unique<nn::Conv2d>(scope / "upsamplers" / 0 / "conv", out, out, 3, 1, 1);
  }

  Tensor forward(Tensor x) const {
    for (const ResnetBlock& resnet : resnets) x = resnet.forward(x);
    return upsampler ? (*upsampler)(ops::upsample_nearest2x(x)) : x;
  }

  std::vector<ResnetBlock> resnets;
  std::unique_ptr<nn::Conv2d> upsampler;
};

AutoencoderKlDecoder::AutoencoderKlDecoder(const AutoencoderKlConfig& config, const nn::Scope& scope,
                                           std::string class_name)
    : Module(std::move(class_name), /*has_repeated_blocks=*/false), config_(config) {
  scope.ignore("encoder.");
  scope.ignore("quant_conv.");
  std::int64_t top = config.decoder_channels().back(), groups = config.norm_num_groups;
  if (config.use_post_quant_conv) {
    post_quant_conv_ = std::make_unique<nn::Conv2d>(scope / "post_quant_conv", config.latent_channels,
                                                    config.latent_channels, 1, 1, 0);
  }
  nn::Scope decoder = scope / "decoder";
  conv_in_ = std::make_unique<nn::Conv2d>(decoder / "conv_in", config.latent_channels, top, 3, 1, 1);
  nn::Scope mid = decoder / "mid_block";
  for (int i = 0; i < 2; ++i) mid_resnets_.emplace_back(mid / "resnets" / i, top, top, groups);
  if (config.mid_block_add_attention) {
    mid_attention_ = std::make_unique<AttentionBlock>(mid / "attentions" / 0, top, groups);
  }
  std::int64_t in = top;
  auto levels = static_cast<int>(config.decoder_channels().size());
  for (int i = 0; i < levels; ++i) {
    std::int64_t out = config.decoder_channels()[static_cast<std::size_t>(levels - 1 - i)];
    up_blocks_.emplace_back(decoder / "up_blocks" / i, in, out, config.layers_per_block + 1, groups,
                            i + 1 < levels);
    in = out;
  }
  conv_norm_out_ =
      std::make_unique<nn::GroupNorm>(decoder / "conv_norm_out", in, static_cast<int>(groups), kNormEps);
  conv_out_ = std::make_unique<nn::Conv2d>(decoder / "conv_out", in, config.out_channels, 3, 1, 1);
}

AutoencoderKlDecoder::~AutoencoderKlDecoder() = default;

Tensor AutoencoderKlDecoder::decode(const Tensor& z, const nn::Observer& observe) const {
  return call([&] { return run(z, observe); });
}

Tensor AutoencoderKlDecoder::run(const Tensor& z, const nn::Observer& observe) const {
  auto report = [&](const std::string& name, const Tensor& t) {
    if (observe) observe(name, t);
  };
  Tensor x = z;
  if (post_quant_conv_) {
    x = (*post_quant_conv_)(x);
    report("post_quant_conv", x);
  }
  x = (*conv_in_)(x);
  report("conv_in", x);
  x = mid_resnets_[0].forward(x);
  if (mid_attention_) {
    x = mid_attention_->forward(x);
    report("mid_block.attentions.0", x);
  }
  x = mid_resnets_[1].forward(x);
  report("mid_block", x);
  for (std::size_t i = 0; i < up_blocks_.size(); ++i) {
    x = up_blocks_[i].forward(x);
    report(fmt::format("up_blocks.{}", i), x);
  }
  x = (*conv_norm_out_)(x);
  report("conv_norm_out", x);
  x = (*conv_out_)(ops::silu(x));
  report("conv_out", x);
  return x;
}

}  // namespace tessera::models
