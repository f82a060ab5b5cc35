#include "tessera/pipelines/denoise.h"

#include <fmt/format.h>

#include <deque>

#include "tessera/ops/ops.h"
#include "tessera/runtime/pending.h"

namespace tessera::pipelines {
namespace {

constexpr std::size_t kStepsAhead = 2;

// Waits until the device has computed the tensor.
void wait_for(const Tensor& tensor) {
  for (const pjrt::BufferPtr& buffer : tensor.node()->buffers()) buffer->ready_event().await();
}

}  // namespace

DeviceSchedule upload_schedule(Context& context, const graph::MeshPtr& mesh, std::span<const float> timesteps,
                               std::span<const float> model_time, std::span<const float> sigmas,
                               std::int64_t batch) {
  DeviceSchedule schedule;
  for (std::size_t i = 0; i < timesteps.size(); ++i) {
    schedule.timesteps.push_back(timesteps[i]);
    std::vector<float> repeated(static_cast<std::size_t>(batch), model_time[i]);
    schedule.model_time.push_back(context.from_f32(repeated, {batch}, mesh));
    float change = sigmas[i + 1] - sigmas[i];
    schedule.sigma_change.push_back(context.from_f32(std::span(&change, 1), {}, mesh));
  }
  return schedule;
}

Tensor guide(const Tensor& scale, const Tensor& from, const Tensor& to) {
  Tensor start = ops::cast(from, DType::kF32);
  Tensor difference = ops::subtract(ops::cast(to, DType::kF32), start);
  return ops::cast(ops::add(start, ops::multiply(scale, difference)), to.dtype());
}

Denoised denoise(Context& context, Tensor latents, const DeviceSchedule& schedule, int begin, int end,
                 const ModelCall& model, const SchedulerStep& step, const Hooks& hooks) {
  std::int64_t transfers_before = context.statistics().host_transfers;
  Denoised out;
  std::deque<Tensor> ahead;
  for (int i = begin; i < end; ++i) {
    auto k = static_cast<std::size_t>(i);
    Tensor prediction = model(i, latents, schedule.model_time[k]);
    latents = step(prediction, latents, schedule.sigma_change[k]);
    // The end of a step ends a program in every mode, so that each step is made of the same ones.
    PendingGraph::of_this_thread().cut();
    ++out.steps;
    if (hooks.trace != nullptr) hooks.trace->add(fmt::format("latents_step{}", i - begin), latents);
    ahead.push_back(latents);
    if (ahead.size() > kStepsAhead) {
      wait_for(ahead.front());
      ahead.pop_front();
    }
    if (hooks.on_step && !hooks.on_step({i - begin, end - begin, schedule.timesteps[k], latents})) {
      out.interrupted = i + 1 < end;
      break;
    }
  }
  out.latents = std::move(latents);
  out.host_transfers = context.statistics().host_transfers - transfers_before;
  return out;
}

}  // namespace tessera::pipelines
