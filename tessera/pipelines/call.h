#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/pipelines/text_to_image.h"
#include "tessera/schedulers/flow_match_euler.h"

// What every pipeline settles about a call before any work.
namespace tessera::pipelines {

// A pipeline's own values for what was not given.
struct CallDefaults {
  std::int64_t height = 1024, width = 1024;  // pixels
  std::int64_t shortest_side = 1;            // a shorter one is refused
  int num_inference_steps = 28;
  int max_sequence_length = 512, longest_sequence_length = 512;
};

// A call with its defaults filled in (the caller's value, else the checkpoint's in tessera.json, else the
// pipeline's) and checked.
struct CommonPlan {
  std::size_t prompts = 0;
  int images_per_prompt = 1;
  std::int64_t height = 0, width = 0;  // as asked for
  int steps = 0, max_sequence_length = 0;

  std::int64_t images() const { return static_cast<std::int64_t>(prompts) * images_per_prompt; }
};

// Throws kInvalidArgument, naming the argument, for what no pipeline takes: no prompt, no seed, another
// number of seeds than one or one an image, sigmas and steps that differ, sizes out of range.
CommonPlan common_plan(const Arguments& arguments, const checkpoint::ModelFolder& folder,
                       const CallDefaults& defaults);

// Rounds the picture's sides down to multiples of that many pixels, as Diffusers' FLUX pipelines do, with a
// warning. Throws kInvalidArgument for a side below one of them.
void floor_size(CommonPlan& plan, std::int64_t multiple);

// Throws kInvalidArgument unless the value is a finite number.
void check_finite(std::string_view argument, double value);

// The settings of a call that every pipeline has, for metadata.
Settings common_settings(const Arguments& arguments, const CommonPlan& plan);

// The latents that the caller gave, on the device as `dtype`. Throws kInvalidArgument for another shape than
// `wanted`.
Tensor given_latents(Context& context, const graph::MeshPtr& mesh, const Latents& latents,
                     const Shape& wanted, DType dtype);
// Noise drawn from the seeds, on the device; "noise" of the trace.
Tensor drawn_latents(Context& context, const graph::MeshPtr& mesh, const std::vector<std::uint64_t>& seeds,
                     const Shape& shape, DType dtype, Trace* trace);

// What the FLUX transformers are told of the time: each timestep is rounded to the latents' dtype, and
// divided by 1000 in it.
std::vector<float> per_thousand(const std::vector<float>& timesteps, DType dtype);

// latents_init, timesteps and sigmas of the trace.
void trace_start(Trace& trace, const Tensor& latents, const schedulers::Schedule& schedule);

}  // namespace tessera::pipelines
