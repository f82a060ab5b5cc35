// FLUX.1-schnell in bf16 on a chip that cannot hold it whole: a component is there only while it runs.
//
//   flux_offload [MODEL [SIZE [FILE]]]    default: black-forest-labs/FLUX.1-schnell 1024 flux.png
//
// How operations become programs is chosen from outside, or by tessera::ScopedExecutionMode:
//
//   mode               a program is                                  asked for by
//   strict eager       one operation, launched asynchronously        the default; TESSERA_EAGER_MODE=
//                                                                    defer_never
//   ... blocking       the same, and each is waited for, so that     TESSERA_EAGER_MODE=
//                      an error names its operation                  defer_never_and_launch_blocking,
//                                                                    TPU_LAUNCH_BLOCKING=1
//   optimised eager    what was deferred up to a repeated block,     TESSERA_EAGER_MODE=defer_and_fuse,
//                      a component, or a value read on the host      TORCH_TPU_DEFER_AND_FUSE=1
//   compile            a whole component                             pipe->module("transformer").compile()
//   compiled blocks    one for each kind of block                    ...compile_repeated_blocks()
//
// Weights are arguments of every program, so offloading goes with each of them, compiling whole components
// included.
#include <cstdio>
#include <cstdlib>

#include "tessera/base/error.h"
#include "tessera/checkpoint/model_folder.h"
#include "tessera/pipelines/text_to_image.h"

int main(int argc, char** argv) try {
  std::string model = argc > 1 ? argv[1] : "black-forest-labs/FLUX.1-schnell";
  int size = argc > 2 ? std::atoi(argv[2]) : 1024;
  std::string file = argc > 3 ? argv[3] : "flux.png";

  tessera::Context context;
  auto folder = tessera::checkpoint::ModelFolder::open(model);
  auto pipe = tessera::pipelines::load_pipeline(folder, context, {.dtype = tessera::DType::kBF16});
  pipe->enable_model_cpu_offload();  // to the first accelerator

  auto result = pipe->generate({.prompt = {"a tiny astronaut hatching from an egg on the moon"},
                                .height = size,
                                .width = size,
                                .num_inference_steps = 4,
                                .guidance_scale = 0.0,
                                .seeds = {0}});
  tessera::image::write_png(file, result.images[0]);
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
