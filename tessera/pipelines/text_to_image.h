#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/random.h"
#include "tessera/checkpoint/model_folder.h"
#include "tessera/image/png.h"
#include "tessera/pipelines/residence.h"
#include "tessera/pipelines/tensor_parallel.h"
#include "tessera/pipelines/trace.h"
#include "tessera/runtime/context.h"

namespace tessera::pipelines {

// Latents given by the caller, in the shape that the pipeline draws its noise in, f32.
struct Latents {
  Shape shape;
  std::vector<float> values;
};

// The arguments of a call, named as in Diffusers. What is not given is the checkpoint's own default
// (tessera.json), else the pipeline's in Diffusers. A pipeline refuses by name what it does not have.
struct Arguments {
  std::vector<std::string> prompt = {};  // one a batch entry
  std::optional<std::vector<std::string>> prompt_2 =
      {};  // as many as prompts; the first prompts if not given
  std::optional<std::vector<std::string>> prompt_3 = {};
  std::optional<std::vector<std::string>> negative_prompt = {};
  std::optional<std::vector<std::string>> negative_prompt_2 = {};
  std::optional<std::vector<std::string>> negative_prompt_3 = {};
  std::optional<std::int64_t> height = {}, width = {};  // pixels
  std::optional<int> num_inference_steps = {};
  std::optional<std::vector<double>> sigmas = {};  // instead of the schedule's own; as many as steps
  std::optional<double> guidance_scale = {};
  std::optional<double> true_cfg_scale = {};
  std::optional<int> max_sequence_length = {};
  std::optional<int> clip_skip = {};
  std::optional<std::vector<int>> skip_guidance_layers = {};
  std::optional<double> skip_layer_guidance_scale = {}, skip_layer_guidance_start = {},
                        skip_layer_guidance_stop = {};
  std::optional<std::vector<int>> text_encoder_out_layers = {};
  int num_images_per_prompt = 1;
  // One generator for the whole batch, or one per image. Never empty: a pipeline does not seed itself.
  std::vector<std::uint64_t> seeds = {};
  // Instead of noise drawn from the seeds.
  std::optional<Latents> latents = {};
};

// What a step callback sees.
struct Step {
  int index = 0, count = 0;  // steps done before this one counts as 0-based index; `count` in all
  double timestep = 0;
  Tensor latents;  // on the device, after the step; reading it is a host transfer
};

// What a caller may watch. All optional.
struct Hooks {
  // A stage begins: "load", "encode", "denoise", "decode".
  std::function<void(std::string_view stage)> on_stage;
  // After each step; false stops the loop, and the latents so far are decoded (as Diffusers' interrupt does).
  std::function<bool(const Step&)> on_step;
  // Receives the tensors of the run (see trace.h); costs host transfers.
  Trace* trace = nullptr;
};

// Names and values as text, for metadata: "guidance_scale" -> "0".
using Settings = std::vector<std::pair<std::string, std::string>>;

struct Result {
  std::vector<image::Image> images;  // for each prompt its images, in order
  std::int64_t height = 0, width = 0;
  int num_inference_steps = 0;  // steps done
  bool interrupted = false;
  Settings settings;                      // those that took effect
  std::map<std::string, double> seconds;  // by stage
  std::int64_t host_transfers_in_loop = 0;
};

struct LoadOptions {
  // Where the components go at once; if not given, they stay in their files until to(),
  // enable_model_cpu_offload() or the first call (then on the CPU).
  std::optional<DeviceName> device = {};
  DType dtype = DType::kF32;  // f32 or bf16: what weights and activations are computed in
  // Over which ranks the components are split; they go to that mesh at once. Instead of a device.
  std::optional<TensorParallelConfig> tensor_parallel = {};
};

// A text-to-image pipeline of a Diffusers folder. Calls are const and may come from several threads; moving,
// offloading and compiling may not go on beside a call.
class TextToImage {
 public:
  virtual ~TextToImage() = default;
  // "FluxPipeline", ...
  virtual std::string_view class_name() const = 0;
  // Throws kInvalidArgument for arguments that do not fit, before any work; kDataLoss for a non-finite
  // latent.
  virtual Result generate(const Arguments& arguments, const Hooks& hooks = {}) const = 0;

  // Moves every component to the device. Throws kOutOfMemory, with nothing left there, if they do not fit,
  // and kInvalidArgument for a pipeline that is split over several.
  void to(const DeviceName& device);
  // Keeps each component on the device only while it runs, in the order of the pipeline; pictures are the
  // same to the bit. Without a device the first accelerator there is, else (with a warning) the CPU. Throws
  // kInvalidArgument for a pipeline that is split over several devices.
  void enable_model_cpu_offload(const std::optional<DeviceName>& device = {});
  // The same, and of a component that runs only the block that is at work and the next one are on the device
  // (nn::BlockStream), so that a component may be larger than the device. Calls of a component that is
  // compiled as a whole throw kInvalidArgument; compiled blocks go.
  void enable_group_offload(const std::optional<DeviceName>& device = {});
  // The component's module, to compile it: "transformer", "text_encoder", "vae". Throws kInvalidArgument,
  // listing the names, for another.
  nn::Module& module(std::string_view name);
  // In the order in which they run.
  std::vector<Component*> components() const { return residence_.components(); }
  // Where the work is done.
  const graph::MeshPtr& mesh() const { return residence_.mesh(); }
  // Bytes of the weights, on one device (the first, where they are split over several) when all are there.
  std::int64_t weight_bytes() const { return residence_.weight_bytes(); }

  // Bytes of tensor data that this process has read from files, for each of its ranks.
  std::int64_t bytes_read() const;

 protected:
  TextToImage(Context& context, DType dtype) : residence_(context, dtype) {}
  // Puts the components where the options say, once they are known.
  void settle(const LoadOptions& options);
  void offload(const std::optional<DeviceName>& device, Offload offload);
  Residence residence_;
};

// The pipeline that model_index.json names. Throws kUnimplemented, listing the
// pipelines there are, for another.
std::unique_ptr<TextToImage> load_pipeline(const checkpoint::ModelFolder& folder, Context& context,
                                           const LoadOptions& options = {}, const Hooks& hooks = {});

}  // namespace tessera::pipelines
