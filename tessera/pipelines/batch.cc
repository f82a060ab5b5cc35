#include "tessera/pipelines/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/ops/ops.h"

namespace tessera::pipelines {

std::vector<std::string> prompts_for(const std::optional<std::vector<std::string>>& given,
                                     const std::vector<std::string>& fallback, std::size_t batch,
                                     std::string_view argument) {
  std::vector<std::string> texts = given ? *given : fallback;
  if (texts.size() == 1 && batch > 1) texts.resize(batch, texts[0]);
  if (texts.size() != batch) {
    invalid_argument("{}: {} texts for {} prompt(s); give one text, or one for each prompt", argument,
                     texts.size(), batch);
  }
  return texts;
}

Tensor repeat_rows(const Tensor& x, int times) {
  if (times == 1) return x;
  std::vector<std::int64_t> single{x.dim(0), 1}, merged{x.dim(0) * times};
  Shape repeated{x.dim(0), times};
  for (int i = 1; i < x.shape().rank(); ++i) {
    single.push_back(x.dim(i));
    repeated.push_back(x.dim(i));
    merged.push_back(x.dim(i));
  }
  return ops::reshape(ops::broadcast_to(ops::reshape(x, single), repeated), merged);
}

std::vector<float> draw_noise(const std::vector<std::uint64_t>& seeds, const Shape& shape, DType dtype) {
  if (seeds.size() == 1) return Generator(seeds[0]).randn(shape.elements(), dtype);
  if (static_cast<std::int64_t>(seeds.size()) != shape[0]) {
    invalid_argument("{} seeds for {} image(s); give one seed for all, or one for each image", seeds.size(),
                     shape[0]);
  }
  std::vector<float> noise;
  for (std::uint64_t seed : seeds) {
    std::vector<float> one = Generator(seed).randn(shape.elements() / shape[0], dtype);
    noise.insert(noise.end(), one.begin(), one.end());
  }
  return noise;
}

void check_range(std::string_view argument, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high)
    invalid_argument("{} is {}; it must be from {} to {}", argument, value, low, high);
}

std::int64_t integer_or_default(std::optional<std::int64_t> given, const checkpoint::ModelFolder& folder,
                                const char* name, std::int64_t fallback) {
  if (given) return *given;
  auto it = folder.defaults().find(name);
  return it == folder.defaults().end() ? fallback : it->get<std::int64_t>();
}

double number_or_default(std::optional<double> given, const checkpoint::ModelFolder& folder, const char* name,
                         double fallback) {
  if (given) return *given;
  auto it = folder.defaults().find(name);
  return it == folder.defaults().end() ? fallback : it->get<double>();
}

std::vector<image::Image> read_images(const Tensor& pixels) {
  std::vector<std::byte> bytes = pixels.to_bytes();
  std::vector<image::Image> images(static_cast<std::size_t>(pixels.dim(0)));
  std::size_t size = images.empty() ? 0 : bytes.size() / images.size();
  for (std::size_t i = 0; i < images.size(); ++i) {
    const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data()) + i * size;
    images[i] = {static_cast<int>(pixels.dim(2)),
                 static_cast<int>(pixels.dim(1)),
                 static_cast<int>(pixels.dim(3)),
                 {begin, begin + size}};
  }
  return images;
}

Tensor upload(Context& context, const graph::MeshPtr& mesh, const std::vector<float>& values,
              const Shape& shape, DType dtype) {
  return ops::cast(context.from_f32(values, shape, mesh), dtype);
}

}  // namespace tessera::pipelines
