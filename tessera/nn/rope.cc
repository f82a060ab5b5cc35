#include "tessera/nn/rope.h"

#include <cmath>
#include <numeric>

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

}  // namespace tessera::nn
