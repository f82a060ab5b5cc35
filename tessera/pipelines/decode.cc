#include "tessera/pipelines/decode.h"

#include "tessera/ops/ops.h"

namespace tessera::pipelines {

Tensor decode_latents(const models::AutoencoderKlDecoder& vae, const Tensor& latents, Trace* trace) {
  Tensor scaled = ops::affine(latents, 1.0 / vae.config().scaling_factor, vae.config().shift_factor);
  Tensor decoded = vae.decode(scaled);
  Tensor pixels = ops::to_image(decoded);
  if (trace != nullptr) {
    trace->add("vae_in", scaled);
    trace->add("vae_out", decoded);
    trace->add("image_u8", pixels);
  }
  return pixels;
}

}  // namespace tessera::pipelines
