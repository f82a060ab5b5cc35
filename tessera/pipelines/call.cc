#include "tessera/pipelines/call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "tessera/base/error.h"
#include "tessera/base/half.h"
#include "tessera/base/log.h"
#include "tessera/pipelines/batch.h"

namespace tessera::pipelines {
namespace {

constexpr std::int64_t kMaxPixels = 16384;  // a side beyond this is taken for a mistake
constexpr std::int64_t kMaxSteps = 1000;
constexpr std::int64_t kMaxImagesPerPrompt = 1024;

int steps_of(const Arguments& a, const checkpoint::ModelFolder& folder, int fallback) {
  std::int64_t steps = integer_or_default(a.num_inference_steps, folder, "num_inference_steps", fallback);
  if (a.sigmas) {
    auto given = static_cast<std::int64_t>(a.sigmas->size());
    if (a.num_inference_steps && given != *a.num_inference_steps) {
      invalid_argument("sigmas: {} were given for {} steps", given, *a.num_inference_steps);
    }
    steps = given;
  }
  check_range("num_inference_steps", steps, 1, kMaxSteps);
  return static_cast<int>(steps);
}

}  // namespace

CommonPlan common_plan(const Arguments& a, const checkpoint::ModelFolder& folder,
                       const CallDefaults& defaults) {
  if (a.prompt.empty()) invalid_argument("prompt: none was given");
  if (a.seeds.empty()) invalid_argument("seeds: none was given; a pipeline does not seed itself");
  check_range("num_images_per_prompt", a.num_images_per_prompt, 1, kMaxImagesPerPrompt);
  CommonPlan plan;
  plan.prompts = a.prompt.size();
  plan.images_per_prompt = a.num_images_per_prompt;
  if (!a.latents && a.seeds.size() != 1 && static_cast<std::int64_t>(a.seeds.size()) != plan.images()) {
    invalid_argument("{} seeds for {} image(s); give one seed for all, or one for each image", a.seeds.size(),
                     plan.images());
  }
  plan.height = integer_or_default(a.height, folder, "height", defaults.height);
  plan.width = integer_or_default(a.width, folder, "width", defaults.width);
  check_range("height", plan.height, defaults.shortest_side, kMaxPixels);
  check_range("width", plan.width, defaults.shortest_side, kMaxPixels);
  plan.steps = steps_of(a, folder, defaults.num_inference_steps);
  std::int64_t length =
      integer_or_default(a.max_sequence_length, folder, "max_sequence_length", defaults.max_sequence_length);
  check_range("max_sequence_length", length, 1, defaults.longest_sequence_length);
  plan.max_sequence_length = static_cast<int>(length);
  return plan;
}

void floor_size(CommonPlan& plan, std::int64_t multiple) {
  check_range("height", plan.height, multiple, kMaxPixels);
  check_range("width", plan.width, multiple, kMaxPixels);
  std::int64_t height = plan.height, width = plan.width;
  plan.height -= plan.height % multiple;
  plan.width -= plan.width % multiple;
  if (plan.height == height && plan.width == width) return;
  log(LogLevel::kWarning, "{} x {} (width x height) is not divisible by {}; the picture is {} x {}", width,
      height, multiple, plan.width, plan.height);
}

void check_finite(std::string_view argument, double value) {
  if (!std::isfinite(value)) invalid_argument("{} is {}; it must be a finite number", argument, value);
}

Settings common_settings(const Arguments& arguments, const CommonPlan& plan) {
  Settings out{{"num_inference_steps", std::to_string(plan.steps)},
               {"max_sequence_length", std::to_string(plan.max_sequence_length)}};
  if (arguments.sigmas) out.emplace_back("sigmas", fmt::format("{}", fmt::join(*arguments.sigmas, ",")));
  return out;
}

Tensor given_latents(Context& context, const graph::MeshPtr& mesh, const Latents& latents,
                     const Shape& wanted, DType dtype) {
  if (latents.shape != wanted || static_cast<std::int64_t>(latents.values.size()) != wanted.elements()) {
    invalid_argument("latents: {} were given, {} are wanted", to_string(latents.shape), to_string(wanted));
  }
  return upload(context, mesh, latents.values, wanted, dtype);
}

Tensor drawn_latents(Context& context, const graph::MeshPtr& mesh, const std::vector<std::uint64_t>& seeds,
                     const Shape& shape, DType dtype, Trace* trace) {
  std::vector<float> noise = draw_noise(seeds, shape, dtype);
  if (trace != nullptr) trace->add_f32("noise", shape, noise);
  return upload(context, mesh, noise, shape, dtype);
}

std::vector<float> per_thousand(const std::vector<float>& timesteps, DType dtype) {
  std::vector<float> out;
  for (float t : timesteps) {
    out.push_back(dtype == DType::kBF16 ? round_to_bf16(round_to_bf16(t) / 1000.0f) : t / 1000.0f);
  }
  return out;
}

void trace_start(Trace& trace, const Tensor& latents, const schedulers::Schedule& schedule) {
  auto steps = static_cast<std::int64_t>(schedule.timesteps.size());
  trace.add("latents_init", latents);
  trace.add_f32("timesteps", {steps}, schedule.timesteps);
  trace.add_f32("sigmas", {steps + 1}, schedule.sigmas);
}

}  // namespace tessera::pipelines
