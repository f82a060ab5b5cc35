#include "tessera/pipelines/decode.h"

#include "tessera/base/error.h"
#include "tessera/ops/ops.h"
#include "tessera/pipelines/batch.h"

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

void read_result(const Denoised& denoised, const Tensor& pixels, Result& result) {
  Tensor finite = ops::all_finite(denoised.latents);
  if (finite.to_bytes()[0] == std::byte{0}) {
    fail(ErrorCode::kDataLoss,
         "the latents are not finite after {} step(s): {} overflowed, or the weights are damaged",
         denoised.steps, dtype_name(denoised.latents.dtype()));
  }
  result.num_inference_steps = denoised.steps;
  result.interrupted = denoised.interrupted;
  result.images = read_images(pixels);
}

}  // namespace tessera::pipelines
