#include "tessera/nn/rope.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tessera/base/error.h"

namespace tessera::nn {

RopeTables rope_tables(Context& context, const graph::MeshPtr& mesh, std::span<const double> positions,
                       std::span<const std::int64_t> axes, double theta) {
  std::size_t tokens = positions.size() / axes.size();
  std::int64_t width = std::accumulate(axes.begin(), axes.end(), std::int64_t{0});
  std::vector<float> cos, sin;
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t a = 0; a < axes.size(); ++a) {
      for (std::int64_t i = 0; i < axes[a]; i += 2) {
        double frequency = 1.0 / std::pow(theta, static_cast<double>(i) / static_cast<double>(axes[a]));
        double angle = positions[t * axes.size() + a] * frequency;
        cos.insert(cos.end(), 2, static_cast<float>(std::cos(angle)));
        sin.insert(sin.end(), 2, static_cast<float>(std::sin(angle)));
      }
    }
  }
  Shape shape{static_cast<std::int64_t>(tokens), width};
  return {context.from_f32(cos, shape, mesh), context.from_f32(sin, shape, mesh)};
}

void check_rope_axes(std::span<const std::int64_t> axes, std::size_t count, std::int64_t head_dim,
                     const std::string& what) {
  std::int64_t width = std::accumulate(axes.begin(), axes.end(), std::int64_t{0});
  bool even = std::ranges::all_of(axes, [](std::int64_t d) { return d % 2 == 0; });
  if (width == head_dim && even && axes.size() == count) return;
  fail(ErrorCode::kDataLoss,
       "{}: axes_dims_rope [{}] must be {} even widths that add up to attention_head_dim {}", what,
       fmt::join(axes, ", "), count, head_dim);
}

RopeTables sequence_rope_tables(Context& context, const graph::MeshPtr& mesh, std::int64_t length,
                                std::int64_t width, double theta) {
  std::vector<float> cos, sin;
  for (std::int64_t t = 0; t < length; ++t) {
    for (std::int64_t i = 0; i < width; ++i) {
      float exponent = static_cast<float>(2 * (i % (width / 2))) / static_cast<float>(width);
      float frequency = 1.0f / std::pow(static_cast<float>(theta), exponent);
      float angle = static_cast<float>(t) * frequency;
      cos.push_back(std::cos(angle));
      sin.push_back(std::sin(angle));
    }
  }
  return {context.from_f32(cos, {length, width}, mesh), context.from_f32(sin, {length, width}, mesh)};
}

}  // namespace tessera::nn
