#pragma once

#include "tessera/models/autoencoder_kl.h"
#include "tessera/pipelines/text_to_image.h"

namespace tessera::pipelines {

// Latents [N, C, h, w] as the model leaves them, through the autoencoder's own scale and shift, to pictures:
// u8 [N, H, W, 3]. vae_in, vae_out and image_u8 of the trace.
Tensor decode_latents(const models::AutoencoderKlDecoder& vae, const Tensor& latents, Trace* trace);

}  // namespace tessera::pipelines
