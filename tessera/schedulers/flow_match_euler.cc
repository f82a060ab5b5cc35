#include "tessera/schedulers/flow_match_euler.h"

#include <cmath>

#include "tessera/base/error.h"
#include "tessera/ops/ops.h"

namespace tessera::schedulers {
namespace {

// shift * s / (1 + (shift - 1) * s).
template <typename T>
T static_shift(T sigma, double shift) {
  return static_cast<T>(shift) * sigma / (T{1} + static_cast<T>(shift - 1.0) * sigma);
}

// The shifts of set_timesteps, in the precision of the values.
template <typename T>
void shift_sigmas(const FlowMatchEulerConfig& config, double mu, std::vector<T>& sigmas) {
  auto weight = static_cast<T>(config.linear_time_shift ? mu : std::exp(mu));
  for (T& s : sigmas) {
    s = config.use_dynamic_shifting ? weight / (weight + (T{1} / s - T{1})) : static_shift(s, config.shift);
  }
  if (config.shift_terminal) {
    T scale = (T{1} - sigmas.back()) / static_cast<T>(1.0 - *config.shift_terminal);
    for (T& s : sigmas) s = T{1} - (T{1} - s) / scale;
  }
}

// The lowest sigma of the training schedule, which the constructor has shifted already.
float training_sigma_min(const FlowMatchEulerConfig& config) {
  float sigma = 1.0f / static_cast<float>(config.num_train_timesteps);
  return config.use_dynamic_shifting ? sigma : static_shift(sigma, config.shift);
}

}  // namespace

FlowMatchEulerConfig FlowMatchEulerConfig::from_json(const nn::Config& c, double max_shift_fallback) {
  for (const char* key : {"use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas", "invert_sigmas",
                          "stochastic_sampling", "use_flow_sigmas"}) {
    c.refuse_flag(key);
  }
  FlowMatchEulerConfig out;
  out.num_train_timesteps = c.size("num_train_timesteps", out.num_train_timesteps);
  out.shift = c.number("shift", out.shift);
  out.use_dynamic_shifting = c.flag("use_dynamic_shifting", out.use_dynamic_shifting);
  out.base_shift = c.number("base_shift", out.base_shift);
  out.max_shift = c.number("max_shift", max_shift_fallback);
  out.base_image_seq_len = c.size("base_image_seq_len", out.base_image_seq_len);
  out.max_image_seq_len = c.size("max_image_seq_len", out.max_image_seq_len);
  if (double terminal = c.number("shift_terminal", 0.0); terminal != 0) out.shift_terminal = terminal;
  std::string type = c.text("time_shift_type", "exponential");
  if (type != "exponential" && type != "linear") {
    fail(ErrorCode::kUnimplemented,
         "{}: time_shift_type '{}' is not supported; supported: exponential, linear", c.what(), type);
  }
  out.linear_time_shift = type == "linear";
  if (!(out.shift > 0) || out.max_image_seq_len == out.base_image_seq_len ||
      (out.shift_terminal && !(*out.shift_terminal > 0 && *out.shift_terminal < 1))) {
    fail(ErrorCode::kDataLoss, "{}: its shift settings make no sense", c.what());
  }
  return out;
}

double calculate_shift(const FlowMatchEulerConfig& config, std::int64_t image_seq_len) {
  double slope = (config.max_shift - config.base_shift) /
                 static_cast<double>(config.max_image_seq_len - config.base_image_seq_len);
  double offset = config.base_shift - slope * static_cast<double>(config.base_image_seq_len);
  return static_cast<double>(image_seq_len) * slope + offset;
}

double empirical_mu(std::int64_t image_seq_len, int num_steps) {
  auto tokens = static_cast<double>(image_seq_len);
  double at_200_steps = 0.00016927 * tokens + 0.45666666;
  if (image_seq_len > 4300) return at_200_steps;
  double at_10_steps = 8.73809524e-05 * tokens + 1.89833333;
  double slope = (at_200_steps - at_10_steps) / 190.0;
  return slope * num_steps + (at_200_steps - 200.0 * slope);
}

std::vector<double> linspace(double begin, double end, int n) {
  std::vector<double> out;
  double step = n > 1 ? (end - begin) / (n - 1) : 0;
  for (int i = 0; i < n; ++i) out.push_back(begin + i * step);
  if (n > 1) out.back() = end;
  return out;
}

Schedule flow_match_schedule(const FlowMatchEulerConfig& config, int num_inference_steps,
                             const std::optional<std::vector<double>>& sigmas, double mu) {
  if (num_inference_steps < 1) invalid_argument("{} steps; at least 1 is wanted", num_inference_steps);
  Schedule out;
  auto train = static_cast<float>(config.num_train_timesteps);
  if (sigmas) {
    for (double s : *sigmas) {
      if (!(s > 0 && s <= 1)) invalid_argument("sigmas: {} is not above 0 and at most 1", s);
      out.sigmas.push_back(static_cast<float>(s));
    }
    if (out.sigmas.empty()) invalid_argument("sigmas: none were given");
    shift_sigmas(config, mu, out.sigmas);
  } else {
    double n = static_cast<double>(config.num_train_timesteps);
    std::vector<double> own =
        linspace(n, static_cast<double>(training_sigma_min(config)) * n, num_inference_steps);
    for (double& s : own) s /= n;
    shift_sigmas(config, mu, own);
    out.sigmas.assign(own.begin(), own.end());
  }
  for (float s : out.sigmas) {
    if (!std::isfinite(s))
      fail(ErrorCode::kDataLoss, "the scheduler's shift settings give noise levels that are not finite");
    out.timesteps.push_back(s * train);
  }
  out.sigmas.push_back(0);
  return out;
}

Tensor euler_step(const Tensor& prediction, const Tensor& latents, const Tensor& sigma_change) {
  Tensor change = ops::multiply(sigma_change, ops::cast(prediction, DType::kF32));
  return ops::cast(ops::add(ops::cast(latents, DType::kF32), change), prediction.dtype());
}

}  // namespace tessera::schedulers
