#include <fmt/format.h>

#include <cmath>

#include "tessera/graph/shape_rules.h"
#include "tessera/kernels/common/helpers.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

using graph::OpCall;
using graph::Value;
using graph::Writer;
using Operands = std::span<const Value>;
using Ints = std::vector<std::int64_t>;

// A [B, D] vector for every row of [B, S, D], in f32.
Value over_sequence(Writer& w, const Value& vector, const Shape& shape) {
  return w.broadcast(w.convert(vector, DType::kF32), shape, Ints{0, 2});
}

Value modulate(Writer& w, const OpCall& call, Operands x) {
  const Shape& s = x[0].type.shape;
  Value factor = over_sequence(w, w.binary("add", w.convert(x[2], DType::kF32), 1.0), s);
  Value y = w.binary("multiply", w.convert(x[0], DType::kF32), factor);
  return w.convert(w.binary("add", y, over_sequence(w, x[1], s)), call.result.dtype);
}

Value gated_add(Writer& w, const OpCall& call, Operands x) {
  const Shape& s = x[0].type.shape;
  Value gated = w.binary("multiply", over_sequence(w, x[1], s), w.convert(x[2], DType::kF32));
  return w.convert(w.binary("add", w.convert(x[0], DType::kF32), gated), call.result.dtype);
}

Value timestep_embedding(Writer& w, const OpCall& call, Operands x) {
  std::int64_t dim = call.attributes.get<std::int64_t>("dim"), half = dim / 2;
  // As Diffusers' get_timestep_embedding, in f32 where that is.
  auto step = static_cast<float>(-std::log(call.attributes.get<double>("max_period")));
  auto divisor =
      static_cast<float>(static_cast<double>(half) - call.attributes.get<double>("downscale_freq_shift"));
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < half; ++i) {
    frequencies.push_back(std::exp(step * static_cast<float>(i) / divisor));
  }
  Shape shape{x[0].type.shape[0], half};
  Value angles = w.binary("multiply", broadcast_along(w, x[0], shape, 0),
                          broadcast_along(w, w.f32_constant(frequencies), shape, 1));
  Value sin = w.unary("sine", angles), cos = w.unary("cosine", angles);
  bool flip = call.attributes.get<bool>("flip_sin_to_cos");
  return w.concatenate(flip ? std::array{cos, sin} : std::array{sin, cos}, 1);
}

Value all_finite(Writer& w, const OpCall& call, Operands x) {
  graph::TensorType flags{DType::kBool, x[0].type.shape};
  Value finite =
      w.line(flags, fmt::format("stablehlo.is_finite {}", x[0].name),
             fmt::format("({}) -> {}", graph::stablehlo_type(x[0].type), graph::stablehlo_type(flags)));
  Ints axes;
  for (int i = 0; i < x[0].type.shape.rank(); ++i) axes.push_back(i);
  return w.reshape(axes.empty() ? finite : w.reduce("and", finite, axes, 1), call.result.shape);
}

// clamp(x / 2 + 1/2) in x's dtype, as VaeImageProcessor does, then bytes.
Value to_image(Writer& w, const OpCall&, Operands x) {
  Value y = w.binary("add", w.binary("multiply", x[0], 0.5), 0.5);
  y = w.binary("minimum", w.binary("maximum", y, 0.0), 1.0);
  y = w.binary("multiply", w.convert(y, DType::kF32), 255.0);
  y = w.convert(w.unary("round_nearest_even", y), DType::kU8);
  return w.transpose(y, Ints{0, 2, 3, 1});
}

}  // namespace

void register_diffusion(graph::LoweringTable& t) {
  t.add(graph::kModulate.name, modulate);
  t.add(graph::kGatedAdd.name, gated_add);
  t.add(graph::kTimestepEmbedding.name, timestep_embedding);
  t.add(graph::kAllFinite.name, all_finite);
  t.add(graph::kToImage.name, to_image);
}

}  // namespace tessera::kernels
