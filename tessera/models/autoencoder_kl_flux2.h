#pragma once

#include "tessera/models/autoencoder_kl.h"

namespace tessera::models {

struct AutoencoderKlFlux2Config : AutoencoderKlConfig {
  double batch_norm_eps = 1e-4;

  static AutoencoderKlFlux2Config from_json(const nn::Config& config);
};

// The decoder of Diffusers' AutoencoderKLFlux2, with the statistics by which its latents were normalised.
class AutoencoderKlFlux2Decoder : public AutoencoderKlDecoder {
 public:
  AutoencoderKlFlux2Decoder(const AutoencoderKlFlux2Config& config, const nn::Scope& scope);

  // Tokens [N, height * width, 4 * latent_channels] as a transformer leaves them, of a picture of height x
  // width of them, to latents [N, latent_channels, 2 * height, 2 * width] as decode() takes them: each
  // feature times its standard deviation plus its mean, then each token a 2x2 patch of all channels, as
  // (channel, row, column).
  Tensor unpack(const Tensor& tokens, std::int64_t height, std::int64_t width) const;

 private:
  double eps_;
  nn::Parameter running_mean_, running_var_;
};

}  // namespace tessera::models
