#include <array>
#include <string_view>

#include "tessera/graph/shape_rules.h"
#include "tessera/kernels/common/helpers.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

using graph::OpCall;
using graph::Value;
using graph::Writer;
using Operands = std::span<const Value>;

// f of the operand in f32, rounded once.
template <Value (*f)(Writer&, const Value&)>
Value in_f32(Writer& w, const OpCall& call, Operands x) {
  return w.convert(f(w, w.convert(x[0], compute_dtype(x[0].type.dtype))), call.result.dtype);
}

Value negate(Writer& w, const Value& x) { return w.unary("negate", x); }
Value exp(Writer& w, const Value& x) { return w.unary("exponential", x); }
Value tanh(Writer& w, const Value& x) { return w.unary("tanh", x); }
Value sin(Writer& w, const Value& x) { return w.unary("sine", x); }
Value cos(Writer& w, const Value& x) { return w.unary("cosine", x); }
Value sqrt(Writer& w, const Value& x) { return w.unary("sqrt", x); }
Value rsqrt(Writer& w, const Value& x) { return w.unary("rsqrt", x); }
Value sigmoid(Writer& w, const Value& x) { return w.unary("logistic", x); }
Value relu(Writer& w, const Value& x) { return w.binary("maximum", x, 0.0); }
Value silu(Writer& w, const Value& x) { return w.binary("multiply", x, w.unary("logistic", x)); }
Value quick_gelu(Writer& w, const Value& x) {
  return w.binary("multiply", x, w.unary("logistic", w.binary("multiply", x, 1.702)));
}

// x / 2 * (1 + erf(x / sqrt(2))).
Value gelu(Writer& w, const Value& x) {
  Value scaled = w.binary("multiply", x, 0.70710678118654752440);
  Value erf = w.line(x.type, "chlo.erf " + scaled.name,
                     graph::stablehlo_type(x.type) + " -> " + graph::stablehlo_type(x.type));
  return w.binary("multiply", w.binary("multiply", x, 0.5), w.binary("add", erf, 1.0));
}

// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
Value gelu_tanh(Writer& w, const Value& x) {
  Value cube = w.binary("multiply", w.binary("multiply", x, x), x);
  Value inner = w.binary("add", x, w.binary("multiply", cube, 0.044715));
  Value t = w.unary("tanh", w.binary("multiply", inner, 0.79788456080286535588));
  return w.binary("multiply", w.binary("multiply", x, 0.5), w.binary("add", t, 1.0));
}

Value affine(Writer& w, const OpCall& call, Operands x) {
  Value wide = w.convert(x[0], compute_dtype(x[0].type.dtype));
  Value scaled = w.binary("multiply", wide, call.attributes.get<double>("multiplier"));
  return w.convert(w.binary("add", scaled, call.attributes.get<double>("offset")), call.result.dtype);
}

// Binary operations in the operands' dtype, with broadcasting.
Value binary(Writer& w, const OpCall& call, Operands x) {
  return w.binary(call.op.name, w.broadcast_to(x[0], call.result.shape),
                  w.broadcast_to(x[1], call.result.shape));
}

}  // namespace

void register_elementwise(graph::LoweringTable& t) {
  t.add(graph::kNegate.name, in_f32<negate>);
  t.add(graph::kExp.name, in_f32<exp>);
  t.add(graph::kTanh.name, in_f32<tanh>);
  t.add(graph::kSin.name, in_f32<sin>);
  t.add(graph::kCos.name, in_f32<cos>);
  t.add(graph::kSqrt.name, in_f32<sqrt>);
  t.add(graph::kRsqrt.name, in_f32<rsqrt>);
  t.add(graph::kSigmoid.name, in_f32<sigmoid>);
  t.add(graph::kRelu.name, in_f32<relu>);
  t.add(graph::kSilu.name, in_f32<silu>);
  t.add(graph::kGelu.name, in_f32<gelu>);
  t.add(graph::kGeluTanh.name, in_f32<gelu_tanh>);
  t.add(graph::kQuickGelu.name, in_f32<quick_gelu>);
  t.add(graph::kAffine.name, affine);
  for (const graph::OpDef* op : std::array{&graph::kAdd, &graph::kSubtract, &graph::kMultiply,
                                           &graph::kDivide, &graph::kMaximum, &graph::kMinimum}) {
    t.add(op->name, binary);
  }
}

}  // namespace tessera::kernels
