#include "tessera/ops/ops.h"

#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/graph/shape_rules.h"

namespace tessera::ops {
namespace {

using Ints = std::vector<std::int64_t>;

Ints to_ints(const Shape& shape) { return {shape.begin(), shape.end()}; }

int checked_axis(std::string_view op, const Tensor& x, int axis) {
  int positive = axis < 0 ? axis + x.shape().rank() : axis;
  if (positive < 0 || positive >= x.shape().rank()) {
    invalid_argument("{}({}): has no axis {}", op, to_string(x.node()->type()), axis);
  }
  return positive;
}

// With the optional operands that are there.
Tensor record_optional(const graph::OpDef& op, graph::Attributes attributes,
                       std::initializer_list<Tensor> required, std::initializer_list<Tensor> optional) {
  std::vector<Tensor> operands(required);
  for (const Tensor& t : optional) {
    if (t) operands.push_back(t);
  }
  return record(op, std::move(attributes), operands);
}

}  // namespace

Tensor negate(const Tensor& x) { return record(graph::kNegate, {}, {x}); }
Tensor exp(const Tensor& x) { return record(graph::kExp, {}, {x}); }
Tensor tanh(const Tensor& x) { return record(graph::kTanh, {}, {x}); }
Tensor sin(const Tensor& x) { return record(graph::kSin, {}, {x}); }
Tensor cos(const Tensor& x) { return record(graph::kCos, {}, {x}); }
Tensor sqrt(const Tensor& x) { return record(graph::kSqrt, {}, {x}); }
Tensor rsqrt(const Tensor& x) { return record(graph::kRsqrt, {}, {x}); }
Tensor sigmoid(const Tensor& x) { return record(graph::kSigmoid, {}, {x}); }
Tensor relu(const Tensor& x) { return record(graph::kRelu, {}, {x}); }
Tensor silu(const Tensor& x) { return record(graph::kSilu, {}, {x}); }
Tensor gelu(const Tensor& x) { return record(graph::kGelu, {}, {x}); }
Tensor gelu_tanh(const Tensor& x) { return record(graph::kGeluTanh, {}, {x}); }
Tensor quick_gelu(const Tensor& x) { return record(graph::kQuickGelu, {}, {x}); }

Tensor add(const Tensor& a, const Tensor& b) { return record(graph::kAdd, {}, {a, b}); }
Tensor subtract(const Tensor& a, const Tensor& b) { return record(graph::kSubtract, {}, {a, b}); }
Tensor multiply(const Tensor& a, const Tensor& b) { return record(graph::kMultiply, {}, {a, b}); }
Tensor divide(const Tensor& a, const Tensor& b) { return record(graph::kDivide, {}, {a, b}); }
Tensor maximum(const Tensor& a, const Tensor& b) { return record(graph::kMaximum, {}, {a, b}); }
Tensor minimum(const Tensor& a, const Tensor& b) { return record(graph::kMinimum, {}, {a, b}); }

Tensor affine(const Tensor& x, double multiplier, double offset) {
  return record(graph::kAffine, {{"multiplier", multiplier}, {"offset", offset}}, {x});
}

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return record(graph::kCast, {{"dtype", dtype}}, {x});
}

Tensor reshape(const Tensor& x, std::vector<std::int64_t> shape) {
  std::int64_t known = 1;
  std::int64_t* open = nullptr;
  for (std::int64_t& d : shape) {
    if (d != -1) {
      known *= d;
    } else if (open == nullptr) {
      open = &d;
    } else {
      invalid_argument("reshape({}): two extents of [{}] are -1", to_string(x.node()->type()),
                       fmt::join(shape, ", "));
    }
  }
  if (open != nullptr) *open = known == 0 ? 0 : x.shape().elements() / known;
  if (Shape{std::span<const std::int64_t>(shape)} == x.shape()) return x;
  return record(graph::kReshape, {{"shape", std::move(shape)}}, {x});
}

Tensor transpose(const Tensor& x, std::vector<std::int64_t> permutation) {
  return record(graph::kTranspose, {{"permutation", std::move(permutation)}}, {x});
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  return record(graph::kBroadcastTo, {{"shape", to_ints(shape)}}, {x});
}

Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::int64_t end) {
  int positive = checked_axis("slice", x, axis);
  Ints low(static_cast<std::size_t>(x.shape().rank()), 0), high = to_ints(x.shape());
  low[static_cast<std::size_t>(positive)] = begin;
  high[static_cast<std::size_t>(positive)] = end;
  return record(graph::kSlice, {{"begin", std::move(low)}, {"end", std::move(high)}}, {x});
}

std::vector<Tensor> split(const Tensor& x, int parts, int axis) {
  std::int64_t extent = x.shape()[checked_axis("split", x, axis)];
  if (parts <= 0 || extent % parts != 0) {
    invalid_argument("split({}): axis {} does not divide into {} parts", to_string(x.node()->type()), axis,
                     parts);
  }
  std::vector<Tensor> out;
  for (std::int64_t i = 0, width = extent / parts; i < parts; ++i) {
    out.push_back(slice(x, axis, i * width, (i + 1) * width));
  }
  return out;
}

Tensor concatenate(std::span<const Tensor> xs, int axis) {
  if (xs.empty()) invalid_argument("concatenate: nothing was given");
  if (xs.size() == 1) return xs[0];
  return record(graph::kConcatenate, {{"axis", std::int64_t{checked_axis("concatenate", xs[0], axis)}}}, xs);
}

Tensor concatenate(std::initializer_list<Tensor> xs, int axis) {
  return concatenate(std::span(xs.begin(), xs.size()), axis);
}

Tensor pad(const Tensor& x, std::vector<std::int64_t> low, std::vector<std::int64_t> high) {
  return record(graph::kPad, {{"low", std::move(low)}, {"high", std::move(high)}}, {x});
}

Tensor sum(const Tensor& x, std::vector<std::int64_t> axes) {
  return record(graph::kSum, {{"axes", std::move(axes)}}, {x});
}
Tensor mean(const Tensor& x, std::vector<std::int64_t> axes) {
  return record(graph::kMean, {{"axes", std::move(axes)}}, {x});
}
Tensor max(const Tensor& x, std::vector<std::int64_t> axes) {
  return record(graph::kMax, {{"axes", std::move(axes)}}, {x});
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return record_optional(graph::kLinear, {}, {x, weight}, {bias});
}

Tensor matmul(const Tensor& a, const Tensor& b) { return record(graph::kMatmul, {}, {a, b}); }

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, int stride, int padding) {
  return record_optional(graph::kConv2d,
                         {{"stride", std::int64_t{stride}}, {"padding", std::int64_t{padding}}}, {x, weight},
                         {bias});
}

Tensor upsample_nearest2x(const Tensor& x) { return record(graph::kUpsampleNearest2x, {}, {x}); }

Tensor embedding(const Tensor& table, const Tensor& ids) {
  return record(graph::kEmbedding, {}, {table, ids});
}
Tensor take_rows(const Tensor& x, const Tensor& positions) {
  return record(graph::kTakeRows, {}, {x, positions});
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  if (static_cast<bool>(weight) != static_cast<bool>(bias)) {
    invalid_argument("layer_norm: wants weight and bias, or neither");
  }
  return record_optional(graph::kLayerNorm, {{"eps", eps}}, {x}, {weight, bias});
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return record_optional(graph::kRmsNorm, {{"eps", eps}}, {x}, {weight});
}

Tensor group_norm(const Tensor& x, int groups, const Tensor& weight, const Tensor& bias, double eps) {
  return record(graph::kGroupNorm, {{"groups", std::int64_t{groups}}, {"eps", eps}}, {x, weight, bias});
}

Tensor softmax(const Tensor& x) { return record(graph::kSoftmax, {}, {x}); }

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias, double scale,
                 bool causal) {
  return record_optional(graph::kAttention, {{"scale", scale}, {"causal", causal}}, {q, k, v}, {bias});
}

Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin, bool halves) {
  return record(graph::kRope, {{"halves", halves}}, {x, cos, sin});
}

Tensor qk_norm_rope(std::span<const Tensor> streams, std::span<const Tensor> weights, double eps,
                    const Tensor& cos, const Tensor& sin, bool halves) {
  std::vector<Tensor> operands(streams.begin(), streams.end());
  operands.insert(operands.end(), weights.begin(), weights.end());
  if (cos) operands.insert(operands.end(), {cos, sin});
  return record(graph::kQkNormRope,
                {{"streams", static_cast<std::int64_t>(streams.size())},
                 {"norm", !weights.empty()},
                 {"rope", static_cast<bool>(cos)},
                 {"halves", halves},
                 {"eps", eps}},
                operands);
}

Tensor modulate(const Tensor& x, const Tensor& shift, const Tensor& scale) {
  return record(graph::kModulate, {}, {x, shift, scale});
}

Tensor gated_add(const Tensor& residual, const Tensor& gate, const Tensor& x) {
  return record(graph::kGatedAdd, {}, {residual, gate, x});
}

Tensor timestep_embedding(const Tensor& timesteps, int dim, bool flip_sin_to_cos, double downscale_freq_shift,
                          double max_period) {
  return record(graph::kTimestepEmbedding,
                {{"dim", std::int64_t{dim}},
                 {"flip_sin_to_cos", flip_sin_to_cos},
                 {"downscale_freq_shift", downscale_freq_shift},
                 {"max_period", max_period}},
                {timesteps});
}

Tensor all_finite(const Tensor& x) { return record(graph::kAllFinite, {}, {x}); }
Tensor to_image(const Tensor& x) { return record(graph::kToImage, {}, {x}); }

Tensor all_reduce(const Tensor& x) {
  const graph::Mesh& mesh = *x.mesh();
  if (mesh.ranks() == 1) return x;
  return record(graph::kAllReduce,
                {{"ranks", std::int64_t{mesh.ranks()}}, {"across_processes", mesh.ranks_elsewhere > 0}}, {x});
}

}  // namespace tessera::ops
