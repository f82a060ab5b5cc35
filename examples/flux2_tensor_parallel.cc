// FLUX.2-dev in bf16, split over the chips of a host: transformer and text encoder are each shared out, so
// that no chip ever holds one whole, and each reads only its part of the files.
// usage: example_flux2_tensor_parallel [MODEL [DEVICE [RANKS [SIZE [STEPS [FILE]]]]]]
//
// One process drives all ranks, here 8:
//   example_flux2_tensor_parallel black-forest-labs/FLUX.2-dev tpu 8
// or a process each, of which the first one saves:
//   tessera launch --nproc 8 -- ./example_flux2_tensor_parallel black-forest-labs/FLUX.2-dev tpu 8
#include <cstdlib>
#include <exception>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "tessera/checkpoint/model_folder.h"
#include "tessera/comm/process_group.h"
#include "tessera/pipelines/text_to_image.h"

namespace {

void draw(std::span<char*> arguments) {
  auto argument = [&](std::size_t i, const char* otherwise) {
    return std::string(i < arguments.size() ? arguments[i] : otherwise);
  };
  std::string model = argument(1, "black-forest-labs/FLUX.2-dev"), device = argument(2, "tpu");
  int ranks = std::stoi(argument(3, "8"));
  int size = std::stoi(argument(4, "1024")), steps = std::stoi(argument(5, "50"));

  // Where several processes were started, they meet before anything else is done.
  const tessera::comm::ProcessGroup* group = nullptr;
  if (auto place = tessera::comm::launch_environment()) {
    group = &tessera::comm::ProcessGroup::join(*place, device);
    ranks = group->size();
  }
  // A mesh: its devices are the ranks. A CPU has as many as it is told to have.
  std::int64_t here = group != nullptr ? 1 : ranks;
  tessera::Context context({.client_options = {{"cpu_device_count", here}}});
  std::vector<tessera::DeviceName> devices;
  for (int rank = 0; rank < here; ++rank) devices.push_back({device, rank});
  auto mesh = group != nullptr ? context.mesh(devices[0], *group) : context.mesh(devices);

  // Every component whose model has a plan is shared out; the decoder has none and is on every rank.
  auto folder = tessera::checkpoint::ModelFolder::open(model);
  auto pipe = tessera::pipelines::load_pipeline(
      folder, context,
      {.dtype = tessera::DType::kBF16,
       .tensor_parallel = tessera::pipelines::TensorParallelConfig{.mesh = mesh}});

  // Compiling is the same call as on one device.
  pipe->module("transformer").compile({.fullgraph = true, .dynamic = false});
  auto result = pipe->generate({.prompt = {"A cat holding a sign that says hello world"},
                                .height = size,
                                .width = size,
                                .num_inference_steps = steps,
                                .guidance_scale = 4.0,
                                .seeds = {0}});
  if (group == nullptr || group->rank() == 0) {
    tessera::image::write_png(argument(6, "flux2.png"), result.images[0]);
    std::cout << pipe->bytes_read() << " bytes read a rank\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  int status = 0;
  try {
    draw({argv, static_cast<std::size_t>(argc)});
  } catch (const std::exception& e) {
    std::cerr << "error: " << e.what() << '\n';
    status = 1;
  }
  // Also ends the others where this one failed.
  if (auto* group = tessera::comm::ProcessGroup::joined()) group->leave(status);
  return status;
}
