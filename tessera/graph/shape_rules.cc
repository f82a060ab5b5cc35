#include "tessera/graph/shape_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::graph {
namespace {

using Types = std::span<const TensorType>;

std::string describe(Types types) {
  std::string out;
  for (const TensorType& t : types) out += (out.empty() ? "" : ", ") + to_string(t);
  return out;
}

// Throws that `op` cannot take the operands, and what it wants.
[[noreturn]] void refuse(std::string_view op, Types types, std::string_view wants) {
  invalid_argument("{}({}): {}", op, describe(types), wants);
}

void expect(bool ok, std::string_view op, Types types, std::string_view wants) {
  if (!ok) refuse(op, types, wants);
}

void expect_like_floats(std::string_view op, Types types) {
  for (const TensorType& t : types) {
    expect(dtype_is_float(t.dtype) && t.dtype == types[0].dtype, op, types,
           "wants floating-point operands of one dtype");
  }
}

// The shape that both broadcast to; refuses shapes that do not.
Shape broadcast(std::string_view op, Types types, const Shape& a, const Shape& b) {
  try {
    return broadcast_shapes(a, b);
  } catch (const Error& error) {
    refuse(op, types, error.what());
  }
}

TensorType infer_unary(std::string_view op, const Attributes&, Types t) {
  expect(dtype_is_float(t[0].dtype), op, t, "wants a floating-point operand");
  return t[0];
}

TensorType infer_binary(std::string_view op, const Attributes&, Types t) {
  expect(t[0].dtype == t[1].dtype, op, t, "wants operands of one dtype; cast one");
  return {t[0].dtype, broadcast(op, t, t[0].shape, t[1].shape)};
}

TensorType infer_affine(std::string_view op, const Attributes&, Types t) {
  expect(dtype_is_float(t[0].dtype), op, t, "wants a floating-point operand");
  return t[0];
}

TensorType infer_cast(std::string_view, const Attributes& a, Types t) {
  return {a.get<DType>("dtype"), t[0].shape};
}

TensorType infer_reshape(std::string_view op, const Attributes& a, Types t) {
  Shape shape{std::span<const std::int64_t>(a.get<std::vector<std::int64_t>>("shape"))};
  expect(shape.elements() == t[0].shape.elements(), op, t,
         fmt::format("has another number of elements than {}", to_string(shape)));
  return {t[0].dtype, shape};
}

TensorType infer_broadcast_to(std::string_view op, const Attributes& a, Types t) {
  Shape shape{std::span<const std::int64_t>(a.get<std::vector<std::int64_t>>("shape"))};
  expect(shape.rank() >= t[0].shape.rank() && broadcast(op, t, t[0].shape, shape) == shape, op, t,
         fmt::format("does not broadcast to {}", to_string(shape)));
  return {t[0].dtype, shape};
}

TensorType infer_transpose(std::string_view op, const Attributes& a, Types t) {
  const auto& permutation = a.get<std::vector<std::int64_t>>("permutation");
  std::vector<std::int64_t> sorted = permutation;
  std::ranges::sort(sorted);
  bool ok = static_cast<int>(sorted.size()) == t[0].shape.rank();
  for (std::size_t i = 0; i < sorted.size(); ++i) ok = ok && sorted[i] == static_cast<std::int64_t>(i);
  expect(ok, op, t, fmt::format("[{}] is no permutation of its axes", fmt::join(permutation, ", ")));
  TensorType out{t[0].dtype, {}};
  for (std::int64_t p : permutation) out.shape.push_back(t[0].shape[static_cast<int>(p)]);
  return out;
}

TensorType infer_slice(std::string_view op, const Attributes& a, Types t) {
  const auto& begin = a.get<std::vector<std::int64_t>>("begin");
  const auto& end = a.get<std::vector<std::int64_t>>("end");
  TensorType out{t[0].dtype, {}};
  bool ok = static_cast<int>(begin.size()) == t[0].shape.rank() && begin.size() == end.size();
  for (std::size_t i = 0; ok && i < begin.size(); ++i) {
    ok = 0 <= begin[i] && begin[i] <= end[i] && end[i] <= t[0].shape[static_cast<int>(i)];
    if (ok) out.shape.push_back(end[i] - begin[i]);
  }
  expect(ok, op, t, fmt::format("no range [{}] to [{}] in it", fmt::join(begin, ", "), fmt::join(end, ", ")));
  return out;
}

TensorType infer_concatenate(std::string_view op, const Attributes& a, Types t) {
  auto axis = static_cast<int>(a.get<std::int64_t>("axis"));
  TensorType out = t[0];
  expect(0 <= axis && axis < out.shape.rank(), op, t, fmt::format("has no axis {}", axis));
  std::int64_t extent = 0;
  for (const TensorType& x : t) {
    expect(x.shape.rank() == out.shape.rank() && x.dtype == out.dtype, op, t, "wants one rank and dtype");
    extent += x.shape[axis];
    Shape like = x.shape;
    like.set(axis, out.shape[axis]);
    expect(like == t[0].shape, op, t, fmt::format("the axes other than {} differ", axis));
  }
  out.shape.set(axis, extent);
  return out;
}

TensorType infer_pad(std::string_view op, const Attributes& a, Types t) {
  const auto& low = a.get<std::vector<std::int64_t>>("low");
  const auto& high = a.get<std::vector<std::int64_t>>("high");
  TensorType out{t[0].dtype, {}};
  expect(static_cast<int>(low.size()) == t[0].shape.rank() && low.size() == high.size(), op, t,
         "wants a low and a high padding for every axis");
  for (std::size_t i = 0; i < low.size(); ++i) {
    expect(low[i] >= 0 && high[i] >= 0, op, t, "paddings are not negative");
    out.shape.push_back(t[0].shape[static_cast<int>(i)] + low[i] + high[i]);
  }
  return out;
}

TensorType infer_reduce(std::string_view op, const Attributes& a, Types t) {
  const auto& axes = a.get<std::vector<std::int64_t>>("axes");
  TensorType out{t[0].dtype, {}};
  expect(t[0].dtype != DType::kBool, op, t, "wants numbers");
  for (std::int64_t axis : axes) {
    expect(0 <= axis && axis < t[0].shape.rank(), op, t, fmt::format("has no axis {}", axis));
    expect(std::ranges::count(axes, axis) == 1, op, t, fmt::format("axis {} is given twice", axis));
  }
  for (int i = 0; i < t[0].shape.rank(); ++i) {
    if (std::ranges::find(axes, i) == axes.end()) out.shape.push_back(t[0].shape[i]);
  }
  return out;
}

TensorType infer_mean(std::string_view op, const Attributes& a, Types t) {
  expect(dtype_is_float(t[0].dtype), op, t, "wants a floating-point operand");
  return infer_reduce(op, a, t);
}

TensorType infer_linear(std::string_view op, const Attributes&, Types t) {
  expect_like_floats(op, t);
  expect(t[0].shape.rank() >= 1 && t[1].shape.rank() == 2 && t[0].shape[-1] == t[1].shape[1], op, t,
         "wants x [..., in] and weight [out, in]");
  expect(t.size() < 3 || t[2].shape == Shape{t[1].shape[0]}, op, t, "wants a bias [out]");
  TensorType out = t[0];
  out.shape.set(-1, t[1].shape[0]);
  return out;
}

TensorType infer_matmul(std::string_view op, const Attributes&, Types t) {
  expect_like_floats(op, t);
  const Shape &a = t[0].shape, &b = t[1].shape;
  bool ok = a.rank() >= 2 && a.rank() == b.rank() && a[-1] == b[-2];
  for (int i = 0; ok && i < a.rank() - 2; ++i) ok = a[i] == b[i];
  expect(ok, op, t, "wants [..., M, K] and [..., K, N] with equal leading axes");
  TensorType out = t[0];
  out.shape.set(-1, b[-1]);
  return out;
}

TensorType infer_conv2d(std::string_view op, const Attributes& a, Types t) {
  expect_like_floats(op, t);
  std::int64_t stride = a.get<std::int64_t>("stride"), padding = a.get<std::int64_t>("padding");
  expect(t[0].shape.rank() == 4 && t[1].shape.rank() == 4 && t[0].shape[1] == t[1].shape[1], op, t,
         "wants x [N, C, H, W] and weight [O, C, kh, kw]");
  expect(t.size() < 3 || t[2].shape == Shape{t[1].shape[0]}, op, t, "wants a bias [O]");
  expect(stride > 0 && padding >= 0, op, t, "wants a positive stride and a padding that is not negative");
  expect(t[1].shape[2] > 0 && t[1].shape[3] > 0, op, t, "wants a kernel that is not empty");
  std::int64_t h = t[0].shape[2] + 2 * padding - t[1].shape[2],
               w = t[0].shape[3] + 2 * padding - t[1].shape[3];
  expect(h >= 0 && w >= 0, op, t, "the kernel is larger than the padded input");
  return {t[0].dtype, {t[0].shape[0], t[1].shape[0], h / stride + 1, w / stride + 1}};
}

TensorType infer_upsample(std::string_view op, const Attributes&, Types t) {
  expect(t[0].shape.rank() == 4, op, t, "wants [N, C, H, W]");
  return {t[0].dtype, {t[0].shape[0], t[0].shape[1], 2 * t[0].shape[2], 2 * t[0].shape[3]}};
}

TensorType infer_embedding(std::string_view op, const Attributes&, Types t) {
  expect(t[0].shape.rank() == 2 && t[1].dtype == DType::kI32, op, t, "wants table [V, D] and i32 ids");
  expect(t[0].shape[0] > 0 || t[1].shape.elements() == 0, op, t, "the table has no rows");
  TensorType out{t[0].dtype, t[1].shape};
  out.shape.push_back(t[0].shape[1]);
  return out;
}

TensorType infer_take_rows(std::string_view op, const Attributes&, Types t) {
  expect(t[0].shape.rank() == 3 && t[1].dtype == DType::kI32 && t[1].shape == Shape{t[0].shape[0]}, op, t,
         "wants x [B, S, D] and i32 positions [B]");
  expect(t[0].shape[1] > 0 || t[0].shape[0] == 0, op, t, "there are no rows to take");
  return {t[0].dtype, {t[0].shape[0], t[0].shape[2]}};
}

TensorType infer_norm(std::string_view op, const Attributes&, Types t) {
  expect_like_floats(op, t);
  expect(t[0].shape.rank() >= 1, op, t, "wants an axis to normalise");
  for (const TensorType& w : t.subspan(1)) {
    expect(w.shape == Shape{t[0].shape[-1]}, op, t, "wants weights as long as the last axis");
  }
  return t[0];
}

TensorType infer_group_norm(std::string_view op, const Attributes& a, Types t) {
  expect_like_floats(op, t);
  std::int64_t groups = a.get<std::int64_t>("groups");
  expect(t[0].shape.rank() >= 2 && groups > 0 && t[0].shape[1] % groups == 0, op, t,
         fmt::format("wants [N, C, ...] with C a multiple of {} groups", groups));
  for (const TensorType& w : t.subspan(1)) {
    expect(w.shape == Shape{t[0].shape[1]}, op, t, "wants weights [C]");
  }
  return t[0];
}

TensorType infer_attention(std::string_view op, const Attributes&, Types t) {
  expect_like_floats(op, t);
  const Shape &q = t[0].shape, &k = t[1].shape, &v = t[2].shape;
  bool grouped = q.rank() == 4 && k.rank() == 4 && (q[2] == k[2] || (k[2] > 0 && q[2] % k[2] == 0));
  expect(grouped && k == v && q[0] == k[0] && q[3] == k[3], op, t,
         "wants q [B, Q, H, D] and k, v [B, K, G, D], where G divides H");
  Shape scores{q[0], q[2], q[1], k[1]};
  expect(t.size() < 4 || (t[3].shape.rank() == 4 && broadcast(op, t, t[3].shape, scores) == scores), op, t,
         "wants a bias that broadcasts to [B, H, Q, K]");
  return t[0];
}

TensorType infer_rope(std::string_view op, const Attributes&, Types t) {
  const Shape& x = t[0].shape;
  expect(dtype_is_float(t[0].dtype) && x.rank() == 4 && x[3] % 2 == 0 && t[1].shape == Shape{x[1], x[3]} &&
             t[2] == t[1] && t[1].dtype == DType::kF32,
         op, t, "wants x [B, S, H, D] with even D and f32 cos, sin [S, D]");
  return t[0];
}

TensorType infer_qk_norm_rope(std::string_view op, const Attributes& a, Types t) {
  auto streams = static_cast<std::size_t>(a.get<std::int64_t>("streams"));
  bool norm = a.get<bool>("norm"), rope = a.get<bool>("rope");
  std::string_view wants =
      "wants streams [B, S, H, D], a weight [D] for each to norm them, and f32 cos, sin [S, D] with even D "
      "to "
      "rotate them";
  expect(streams > 0 && t.size() == (norm ? 2 : 1) * streams + (rope ? 2 : 0), op, t, wants);
  TensorType out = t[0];
  expect(dtype_is_float(out.dtype) && out.shape.rank() == 4, op, t, wants);
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < streams; ++i) {
    Shape like = out.shape;
    if (t[i].shape.rank() == 4) like.set(1, t[i].shape[1]);
    expect(t[i].dtype == out.dtype && t[i].shape == like, op, t, wants);
    expect(!norm || t[streams + i] == TensorType{out.dtype, {like[3]}}, op, t, wants);
    rows += like[1];
  }
  out.shape.set(1, rows);
  const TensorType table{DType::kF32, {rows, out.shape[3]}};
  expect(!rope || (out.shape[3] % 2 == 0 && t[t.size() - 2] == table && t.back() == table), op, t, wants);
  return out;
}

TensorType infer_all_reduce(std::string_view op, const Attributes& a, Types t) {
  expect(dtype_is_float(t[0].dtype), op, t, "wants a floating-point operand");
  expect(a.get<std::int64_t>("ranks") > 0, op, t, "wants at least one rank");
  return t[0];
}

TensorType infer_modulate(std::string_view op, const Attributes&, Types t) {
  expect_like_floats(op, t);
  const Shape& x = t[0].shape;
  expect(x.rank() == 3 && t[1].shape == Shape{x[0], x[2]} && t[2].shape == t[1].shape, op, t,
         "wants x [B, S, D] and shift, scale [B, D]");
  return t[0];
}

TensorType infer_gated_add(std::string_view op, const Attributes&, Types t) {
  expect_like_floats(op, t);
  const Shape& x = t[0].shape;
  expect(x.rank() == 3 && t[1].shape == Shape{x[0], x[2]} && t[2].shape == x, op, t,
         "wants residual [B, S, D], gate [B, D], x [B, S, D]");
  return t[0];
}

TensorType infer_timestep_embedding(std::string_view op, const Attributes& a, Types t) {
  std::int64_t dim = a.get<std::int64_t>("dim");
  expect(t[0].dtype == DType::kF32 && t[0].shape.rank() == 1 && dim >= 2 && dim % 2 == 0, op, t,
         "wants f32 timesteps [B] and an even width");
  expect(a.get<double>("downscale_freq_shift") < static_cast<double>(dim / 2), op, t,
         "wants downscale_freq_shift to be less than half the width");
  return {DType::kF32, {t[0].shape[0], dim}};
}

TensorType infer_all_finite(std::string_view op, const Attributes&, Types t) {
  expect(dtype_is_float(t[0].dtype), op, t, "wants a floating-point operand");
  return {DType::kBool, {}};
}

TensorType infer_to_image(std::string_view op, const Attributes&, Types t) {
  expect(dtype_is_float(t[0].dtype) && t[0].shape.rank() == 4, op, t, "wants floats [N, C, H, W]");
  const Shape& x = t[0].shape;
  return {DType::kU8, {x[0], x[2], x[3], x[1]}};
}

}  // namespace

const OpDef kNegate{"negate", infer_unary}, kExp{"exp", infer_unary}, kTanh{"tanh", infer_unary},
    kSin{"sin", infer_unary}, kCos{"cos", infer_unary}, kSqrt{"sqrt", infer_unary},
    kRsqrt{"rsqrt", infer_unary}, kSigmoid{"sigmoid", infer_unary}, kSilu{"silu", infer_unary},
    kGelu{"gelu", infer_unary}, kGeluTanh{"gelu_tanh", infer_unary}, kQuickGelu{"quick_gelu", infer_unary},
    kRelu{"relu", infer_unary};
const OpDef kAdd{"add", infer_binary}, kSubtract{"subtract", infer_binary},
    kMultiply{"multiply", infer_binary}, kDivide{"divide", infer_binary}, kMaximum{"maximum", infer_binary},
    kMinimum{"minimum", infer_binary};
const OpDef kAffine{"affine", infer_affine};
const OpDef kCast{"cast", infer_cast};
const OpDef kReshape{"reshape", infer_reshape}, kBroadcastTo{"broadcast_to", infer_broadcast_to};
const OpDef kTranspose{"transpose", infer_transpose};
const OpDef kSlice{"slice", infer_slice};
const OpDef kConcatenate{"concatenate", infer_concatenate};
const OpDef kPad{"pad", infer_pad};
const OpDef kSum{"sum", infer_reduce}, kMean{"mean", infer_mean}, kMax{"max", infer_reduce};
const OpDef kLinear{"linear", infer_linear};
const OpDef kMatmul{"matmul", infer_matmul};
const OpDef kConv2d{"conv2d", infer_conv2d};
const OpDef kUpsampleNearest2x{"upsample_nearest2x", infer_upsample};
const OpDef kEmbedding{"embedding", infer_embedding};
const OpDef kTakeRows{"take_rows", infer_take_rows};
const OpDef kLayerNorm{"layer_norm", infer_norm}, kRmsNorm{"rms_norm", infer_norm};
const OpDef kGroupNorm{"group_norm", infer_group_norm};
const OpDef kSoftmax{"softmax", infer_norm};
const OpDef kAttention{"attention", infer_attention};
const OpDef kRope{"rope", infer_rope};
const OpDef kQkNormRope{"qk_norm_rope", infer_qk_norm_rope};
const OpDef kModulate{"modulate", infer_modulate};
const OpDef kGatedAdd{"gated_add", infer_gated_add};
const OpDef kTimestepEmbedding{"timestep_embedding", infer_timestep_embedding};
const OpDef kAllFinite{"all_finite", infer_all_finite};
const OpDef kToImage{"to_image", infer_to_image};
const OpDef kAllReduce{"all_reduce", infer_all_reduce};

std::span<const OpDef* const> all_operations() {
  static constexpr const OpDef* kAll[] = {&kNegate,      &kExp,
                                          &kTanh,        &kSin,
                                          &kCos,         &kSqrt,
                                          &kRsqrt,       &kSigmoid,
                                          &kSilu,        &kGelu,
                                          &kGeluTanh,    &kQuickGelu,
                                          &kRelu,        &kAdd,
                                          &kSubtract,    &kMultiply,
                                          &kDivide,      &kMaximum,
                                          &kMinimum,     &kAffine,
                                          &kCast,        &kReshape,
                                          &kBroadcastTo, &kTranspose,
                                          &kSlice,       &kConcatenate,
                                          &kPad,         &kSum,
                                          &kMean,        &kMax,
                                          &kLinear,      &kMatmul,
                                          &kConv2d,      &kUpsampleNearest2x,
                                          &kEmbedding,   &kTakeRows,
                                          &kLayerNorm,   &kRmsNorm,
                                          &kGroupNorm,   &kSoftmax,
                                          &kAttention,   &kRope,
                                          &kQkNormRope,  &kModulate,
                                          &kGatedAdd,    &kTimestepEmbedding,
                                          &kAllFinite,   &kToImage,
                                          &kAllReduce};
  return kAll;
}

}  // namespace tessera::graph
