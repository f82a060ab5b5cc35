#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/nn/config.h"
#include "tessera/runtime/tensor.h"

namespace tessera::schedulers {

// Diffusers' FlowMatchEulerDiscreteScheduler: its config, without what is refused.
struct FlowMatchEulerConfig {
  std::int64_t num_train_timesteps = 1000;
  double shift = 1.0;
  bool use_dynamic_shifting = false;
  double base_shift = 0.5, max_shift = 1.15;
  std::int64_t base_image_seq_len = 256, max_image_seq_len = 4096;
  std::optional<double> shift_terminal;
  bool linear_time_shift = false;  // time_shift_type "linear" instead of "exponential"

  // Throws kUnimplemented, naming it, for an option that is set and not supported (Karras, exponential and
  // beta sigmas, inverted sigmas, stochastic sampling). `max_shift` and `base_shift` fall back to the
  // pipeline's own.
  static FlowMatchEulerConfig from_json(const nn::Config& config, double max_shift_fallback = 1.15);
};

// Noise levels from 1 towards 0: `sigmas` has a final 0 and so one more than `timesteps`, which are in units
// of training steps (sigma * num_train_timesteps).
struct Schedule {
  std::vector<float> timesteps, sigmas;
};

// The shift for a picture of that many tokens: linear in it between (base_image_seq_len, base_shift) and
// (max_image_seq_len, max_shift).
double calculate_shift(const FlowMatchEulerConfig& config, std::int64_t image_seq_len);

// FLUX.2's shift for a picture of that many tokens in that many steps: fitted lines in both, with a jump
// above 4300 tokens, where the steps no longer matter (compute_empirical_mu of the published code).
double empirical_mu(std::int64_t image_seq_len, int num_steps);

// n values from `begin` to `end`, both included, as numpy.linspace gives them.
std::vector<double> linspace(double begin, double end, int n);

// The schedule from the given sigmas (in f32, as numpy computes it there), or from evenly spaced timesteps if
// none are given (in f64). `mu` is used with dynamic shifting only. A static shift applies twice to the
// latter, as in Diffusers. Throws kInvalidArgument for sigmas that are not finite, not positive or above 1.
Schedule flow_match_schedule(const FlowMatchEulerConfig& config, int num_inference_steps,
                             const std::optional<std::vector<double>>& sigmas, double mu);

// One step of Euler's method: latents + sigma_change * prediction, computed in f32 and rounded to the
// prediction's dtype. sigma_change f32 [].
Tensor euler_step(const Tensor& prediction, const Tensor& latents, const Tensor& sigma_change);

}  // namespace tessera::schedulers
