#include "tessera/models/autoencoder_kl_flux2.h"

#include "tessera/base/error.h"
#include "tessera/ops/ops.h"

namespace tessera::models {

AutoencoderKlFlux2Config AutoencoderKlFlux2Config::from_json(const nn::Config& c) {
  AutoencoderKlFlux2Config out;
  out.latent_channels = 32;
  out.layers_per_block = 2;
  out.block_out_channels = {128, 256, 512, 512};
  out.scaling_factor = 1;  // there is none
  out.read(c);
  out.batch_norm_eps = c.number("batch_norm_eps", out.batch_norm_eps);
  std::vector<std::int64_t> patch = c.sizes("patch_size", std::vector<std::int64_t>{2, 2});
  if (patch != std::vector<std::int64_t>{2, 2}) {
    fail(ErrorCode::kUnimplemented, "{}: only a patch_size of [2, 2] is supported", c.what());
  }
  if (!(out.batch_norm_eps > 0))
    fail(ErrorCode::kDataLoss, "{}: batch_norm_eps is {}", c.what(), out.batch_norm_eps);
  return out;
}

AutoencoderKlFlux2Decoder::AutoencoderKlFlux2Decoder(const AutoencoderKlFlux2Config& config,
                                                     const nn::Scope& scope)
    : AutoencoderKlDecoder(config, scope, "AutoencoderKLFlux2"), eps_(config.batch_norm_eps) {
  nn::Scope bn = scope / "bn";
  running_mean_ = bn.parameter("running_mean", {4 * config.latent_channels});
  running_var_ = bn.parameter("running_var", {4 * config.latent_channels});
  bn.ignore("num_batches_tracked");
}

Tensor AutoencoderKlFlux2Decoder::unpack(const Tensor& tokens, std::int64_t height,
                                         std::int64_t width) const {
  std::int64_t n = tokens.dim(0), channels = config().latent_channels;
  Tensor deviation = ops::sqrt(ops::affine(running_var_.tensor(), 1.0, eps_));
  Tensor features = ops::add(ops::multiply(tokens, deviation), running_mean_.tensor());
  Tensor patches = ops::reshape(features, {n, height, width, channels, 2, 2});
  return ops::reshape(ops::transpose(patches, {0, 3, 1, 4, 2, 5}), {n, channels, 2 * height, 2 * width});
}

}  // namespace tessera::models
