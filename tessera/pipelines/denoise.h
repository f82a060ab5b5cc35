#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tessera/pipelines/text_to_image.h"
#include "tessera/runtime/tensor.h"

namespace tessera::pipelines {

// A schedule on the device: what each step needs, uploaded before the loop so that nothing moves inside it.
struct DeviceSchedule {
  std::vector<double> timesteps;     // for callbacks, one a step
  std::vector<Tensor> model_time;    // f32 [B]: what the model is told
  std::vector<Tensor> sigma_change;  // f32 []: sigma of the next step less this step's
};

// The schedule's numbers as tensors: `model_time` has a value a step, repeated for a batch; `sigmas` one more
// than steps.
DeviceSchedule upload_schedule(Context& context, const graph::MeshPtr& mesh, std::span<const float> timesteps,
                               std::span<const float> model_time, std::span<const float> sigmas,
                               std::int64_t batch);

// Classifier-free guidance: from + scale * (to - from) for a scale f32 [], computed in f32 and rounded once.
Tensor guide(const Tensor& scale, const Tensor& from, const Tensor& to);

// Predicts the change of the latents at a step.
using ModelCall = std::function<Tensor(int step, const Tensor& latents, const Tensor& model_time)>;
// Makes the latents of the next step from the prediction.
using SchedulerStep =
    std::function<Tensor(const Tensor& prediction, const Tensor& latents, const Tensor& sigma_change)>;

struct Denoised {
  Tensor latents;
  int steps = 0;  // done
  bool interrupted = false;
  std::int64_t host_transfers = 0;  // inside the loop
};

// Runs the steps [begin, end) of the schedule. The host runs at most two steps ahead of the device. Reads
// nothing back unless a hook does.
Denoised denoise(Context& context, Tensor latents, const DeviceSchedule& schedule, int begin, int end,
                 const ModelCall& model, const SchedulerStep& step, const Hooks& hooks);

}  // namespace tessera::pipelines
