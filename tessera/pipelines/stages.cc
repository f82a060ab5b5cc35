#include "tessera/pipelines/stages.h"

#include <chrono>

#include "tessera/base/error.h"
#include "tessera/ops/ops.h"
#include "tessera/pipelines/batch.h"

namespace tessera::pipelines {
namespace {

// Runs f as the stage of that name: tells the hook, and adds its seconds, the device's work included.
template <typename F>
auto stage(const char* name, Context& context, const Hooks& hooks, Result& result, F&& f) {
  using Clock = std::chrono::steady_clock;
  struct Timer {
    Context& context;
    double& seconds;
    Clock::time_point start = Clock::now();
    ~Timer() {
      context.synchronise();
      seconds += std::chrono::duration<double>(Clock::now() - start).count();
    }
  };
  if (hooks.on_stage) hooks.on_stage(name);
  Timer timer{context, result.seconds[name]};
  return f();
}

// Reads the pictures that `pixels` are into `result`, with what is known of the steps.
void read_result(const Denoised& denoised, const Tensor& pixels, Result& result) {
  Tensor finite = ops::all_finite(denoised.latents);
  if (finite.to_bytes()[0] == std::byte{0}) {
    fail(ErrorCode::kDataLoss,
         "the latents are not finite after {} step(s): {} overflowed, or the weights are damaged",
         denoised.steps, dtype_name(denoised.latents.dtype()));
  }
  result.num_inference_steps = denoised.steps;
  result.interrupted = denoised.interrupted;
  result.host_transfers_in_loop = denoised.host_transfers;
  result.images = read_images(pixels);
}

}  // namespace

Result run_stages(const Residence& residence, const Component& transformer, const Component& vae,
                  const CommonPlan& plan, Settings settings, const Hooks& hooks, const CallStages& call) {
  Result result;
  result.height = plan.height;
  result.width = plan.width;
  result.settings = std::move(settings);
  std::unique_lock<std::mutex> turn = residence.turn();
  Context& context = residence.context();
  stage("encode", context, hooks, result, call.encode);
  Denoised denoised = stage("denoise", context, hooks, result, [&] {
    Residence::Use on_device(residence, transformer);
    return call.denoise();
  });
  stage("decode", context, hooks, result, [&] {
    Residence::Use on_device(residence, vae);
    read_result(denoised, call.decode(context.to(denoised.latents, residence.mesh(vae))), result);
  });
  return result;
}

}  // namespace tessera::pipelines
