#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/pipelines/text_to_image.h"

// What pipelines do alike with a batch of prompts, seeds and pictures.
namespace tessera::pipelines {

// The list for one of the text encoders: `given`, or `fallback` where it is not. Throws kInvalidArgument,
// naming the argument, if it has another length than the prompts (one text serves all).
std::vector<std::string> prompts_for(const std::optional<std::vector<std::string>>& given,
                                     const std::vector<std::string>& fallback, std::size_t batch,
                                     std::string_view argument);

// Each entry `times` times in a row.
template <typename T>
std::vector<T> repeat_each(const std::vector<T>& values, int times) {
  std::vector<T> out;
  for (const T& value : values) out.insert(out.end(), static_cast<std::size_t>(times), value);
  return out;
}

// Rows of a [B, ...] tensor, each `times` times in a row: [B * times, ...].
Tensor repeat_rows(const Tensor& x, int times);

// Noise [images, ...] as Diffusers draws it: all of it from one seed, or each image from its own. Throws
// kInvalidArgument for another number of seeds.
std::vector<float> draw_noise(const std::vector<std::uint64_t>& seeds, const Shape& shape, DType dtype);

// Throws kInvalidArgument unless the value is within [low, high].
void check_range(std::string_view argument, std::int64_t value, std::int64_t low, std::int64_t high);

// The value given, or the checkpoint's default of that name, or the pipeline's.
std::int64_t integer_or_default(std::optional<std::int64_t> given, const checkpoint::ModelFolder& folder,
                                const char* name, std::int64_t fallback);
double number_or_default(std::optional<double> given, const checkpoint::ModelFolder& folder, const char* name,
                         double fallback);

// u8 [N, H, W, 3] on the device to pictures. One host transfer.
std::vector<image::Image> read_images(const Tensor& pixels);

// f32 values as a tensor of the dtype on the mesh (rounded on the device).
Tensor upload(Context& context, const graph::MeshPtr& mesh, const std::vector<float>& values,
              const Shape& shape, DType dtype);

}  // namespace tessera::pipelines
