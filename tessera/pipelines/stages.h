#pragma once

#include <functional>

#include "tessera/pipelines/call.h"
#include "tessera/pipelines/denoise.h"

namespace tessera::pipelines {

// The parts of a call that differ from pipeline to pipeline.
struct CallStages {
  std::function<void()> encode;                         // the texts
  std::function<Denoised()> denoise;                    // with the transformer's weights on the device
  std::function<Tensor(const Tensor& latents)> decode;  // to u8 [N, H, W, 3], with the autoencoder's
};

// The course of every call: its stages one after the other, timed, each with the component that it needs on
// the device. Throws kDataLoss if the latents are not finite: a black picture is no result.
Result run_stages(const Residence& residence, const Component& transformer, const Component& vae,
                  const CommonPlan& plan, Settings settings, const Hooks& hooks, const CallStages& call);

}  // namespace tessera::pipelines
