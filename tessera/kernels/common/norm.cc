#include "tessera/kernels/common/norm.h"

#include <cmath>
#include <limits>

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

Value mean_over(Writer& w, const Value& x, const Ints& axes) {
  return w.binary("multiply", w.reduce("add", x, axes, 0), 1.0 / count_along(x.type.shape, axes));
}

// (x - mean) / sqrt(variance + eps) over the axes, in two passes, which keeps its precision for large means.
Value normalise(Writer& w, const Value& x, const Ints& axes, double eps) {
  Value centred = w.binary("subtract", x, broadcast_back(w, mean_over(w, x, axes), x.type.shape, axes));
  Value variance = mean_over(w, w.binary("multiply", centred, centred), axes);
  Value scale = w.unary("rsqrt", w.binary("add", variance, eps));
  return w.binary("multiply", centred, broadcast_back(w, scale, x.type.shape, axes));
}

// y * weight + bias along one axis; y is wide, the weights are of any float dtype.
Value scale_and_shift(Writer& w, Value y, Operands weights, int axis) {
  DType wide = y.type.dtype;
  if (!weights.empty()) {
    y = w.binary("multiply", y, broadcast_along(w, w.convert(weights[0], wide), y.type.shape, axis));
  }
  if (weights.size() > 1)
    y = w.binary("add", y, broadcast_along(w, w.convert(weights[1], wide), y.type.shape, axis));
  return y;
}

Value layer_norm(Writer& w, const OpCall& call, Operands x) {
  int last = x[0].type.shape.rank() - 1;
  Value wide = w.convert(x[0], compute_dtype(x[0].type.dtype));
  Value y = normalise(w, wide, {last}, call.attributes.get<double>("eps"));
  return w.convert(scale_and_shift(w, y, x.subspan(1), last), call.result.dtype);
}

Value group_norm(Writer& w, const OpCall& call, Operands x) {
  const Shape& shape = x[0].type.shape;
  std::int64_t groups = call.attributes.get<std::int64_t>("groups");
  std::int64_t inner = 1;
  for (int i = 2; i < shape.rank(); ++i) inner *= shape[i];
  Value grouped = w.reshape(x[0], {shape[0], groups, shape[1] / groups, inner});
  Value y = normalise(w, w.convert(grouped, compute_dtype(x[0].type.dtype)), {2, 3},
                      call.attributes.get<double>("eps"));
  y = scale_and_shift(w, w.reshape(y, shape), x.subspan(1), 1);
  return w.convert(y, call.result.dtype);
}

Value softmax(Writer& w, const OpCall& call, Operands x) {
  Value wide = w.convert(x[0], compute_dtype(x[0].type.dtype));
  Ints last{wide.type.shape.rank() - 1};
  Value top = w.reduce("maximum", wide, last, -std::numeric_limits<double>::infinity());
  Value e = w.unary("exponential", w.binary("subtract", wide, broadcast_back(w, top, wide.type.shape, last)));
  Value sum = w.reduce("add", e, last, 0);
  return w.convert(w.binary("divide", e, broadcast_back(w, sum, e.type.shape, last)), call.result.dtype);
}

// Sums are kept in f32; integers in their own dtype.
Value widen(Writer& w, const Value& x) {
  return dtype_is_float(x.type.dtype) ? w.convert(x, compute_dtype(x.type.dtype)) : x;
}

Value sum(Writer& w, const OpCall& call, Operands x) {
  return w.convert(w.reduce("add", widen(w, x[0]), call.attributes.get<Ints>("axes"), 0), call.result.dtype);
}

Value mean(Writer& w, const OpCall& call, Operands x) {
  return w.convert(mean_over(w, widen(w, x[0]), call.attributes.get<Ints>("axes")), call.result.dtype);
}

// What is not greater than any value of the dtype.
double lowest(DType dtype) {
  switch (dtype) {
    case DType::kU4:
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64:
      return 0;
    default:
      if (dtype_is_float(dtype)) return -std::numeric_limits<double>::infinity();
      return -std::ldexp(1.0, dtype_bits(dtype) - 1);
  }
}

Value max(Writer& w, const OpCall& call, Operands x) {
  return w.reduce("maximum", x[0], call.attributes.get<Ints>("axes"), lowest(x[0].type.dtype));
}

}  // namespace

Value lower_rms_norm(Writer& w, const OpCall& call, Operands x) {
  int last = x[0].type.shape.rank() - 1;
  Value wide = w.convert(x[0], compute_dtype(x[0].type.dtype));
  Value square = mean_over(w, w.binary("multiply", wide, wide), {last});
  Value scale = w.unary("rsqrt", w.binary("add", square, call.attributes.get<double>("eps")));
  Value y = w.binary("multiply", wide, broadcast_back(w, scale, wide.type.shape, Ints{last}));
  return w.convert(scale_and_shift(w, y, x.subspan(1), last), call.result.dtype);
}

void register_norm(graph::LoweringTable& t) {
  t.add(graph::kLayerNorm.name, layer_norm);
  t.add(graph::kRmsNorm.name, lower_rms_norm);
  t.add(graph::kGroupNorm.name, group_norm);
  t.add(graph::kSoftmax.name, softmax);
  t.add(graph::kSum.name, sum);
  t.add(graph::kMean.name, mean);
  t.add(graph::kMax.name, max);
}

}  // namespace tessera::kernels
