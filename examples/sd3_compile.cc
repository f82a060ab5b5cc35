// Stable Diffusion 3.5 in bf16, resident on one device, with its transformer compiled.
// usage: example_sd3_compile [MODEL [DEVICE [SIZE [STEPS [FILE]]]]]
#include <cstdlib>
#include <exception>
#include <iostream>
#include <span>
#include <string>

#include "tessera/checkpoint/model_folder.h"
#include "tessera/pipelines/text_to_image.h"

namespace {

void draw(std::span<char*> arguments) {
  auto argument = [&](std::size_t i, const char* otherwise) {
    return std::string(i < arguments.size() ? arguments[i] : otherwise);
  };
  std::string model = argument(1, "stabilityai/stable-diffusion-3.5-medium");
  int size = std::stoi(argument(3, "1024")), steps = std::stoi(argument(4, "40"));

  // Load, and move to the device.
  tessera::Context context;
  auto folder = tessera::checkpoint::ModelFolder::open(model);
  auto pipe = tessera::pipelines::load_pipeline(folder, context, {.dtype = tessera::DType::kBF16});
  pipe->to(tessera::DeviceName::parse(argument(2, "tpu")));

  // The transformer becomes one program. Sizes are a part of it: another size is compiled once, too.
  pipe->module("transformer").compile({.fullgraph = true, .dynamic = false});
  tessera::pipelines::Arguments call{.prompt = {"A cat holding a sign that says hello world"},
                                     .height = size,
                                     .width = size,
                                     .num_inference_steps = steps,
                                     .guidance_scale = 4.5,
                                     .seeds = {0}};

  // The first call compiles. More steps, another prompt or seed compile nothing.
  tessera::pipelines::Arguments warm_up = call;
  warm_up.num_inference_steps = 1;
  pipe->generate(warm_up);

  auto result = pipe->generate(call);
  tessera::image::write_png(argument(5, "sd3.png"), result.images[0]);
  std::cout << result.seconds.at("denoise") / steps << " s a step\n";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    draw({argv, static_cast<std::size_t>(argc)});
  } catch (const std::exception& e) {
    std::cerr << "error: " << e.what() << '\n';
    return 1;
  }
}
