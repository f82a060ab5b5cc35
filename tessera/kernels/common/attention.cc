#include "tessera/kernels/common/attention.h"

#include <algorithm>
#include <array>
#include <limits>

#include "tessera/graph/shape_rules.h"
#include "tessera/kernels/common/helpers.h"
#include "tessera/kernels/common/norm.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

using graph::OpCall;
using graph::Value;
using graph::Writer;
using Operands = std::span<const Value>;
using Ints = std::vector<std::int64_t>;

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

Value i32(Writer& w, std::int64_t value) { return w.splat(static_cast<double>(value), {DType::kI32, {}}); }

// Where query `first` + i comes before key j: [Q, K] of bool, true for keys that are hidden.
Value hidden_by_causality(Writer& w, std::int64_t queries, std::int64_t keys, const Value& first) {
  graph::TensorType type{DType::kI32, {queries, keys}};
  Value query = w.binary("add", w.iota(type, 0), w.broadcast(first, type.shape, {}));
  return w.compare("LT", query, w.iota(type, 1));
}

// q k' for each head, [B, H, Q, K]. Where a key-value head serves several of the queries', these stand side
// by side in one product.
Value query_key_products(Writer& w, const Value& q, const Value& k) {
  DType wide = compute_dtype(q.type.dtype);
  const Shape &s = q.type.shape, &ks = k.type.shape;
  if (s[2] == ks[2]) return w.dot_general(q, k, Ints{0, 2}, Ints{0, 2}, Ints{3}, Ints{3}, wide);
  Value grouped = w.reshape(w.transpose(q, Ints{0, 2, 1, 3}), {s[0], ks[2], s[2] / ks[2] * s[1], s[3]});
  Value scores = w.dot_general(grouped, k, Ints{0, 1}, Ints{0, 2}, Ints{3}, Ints{3}, wide);
  return w.reshape(scores, {s[0], s[2], s[1], ks[1]});
}

// weights [B, H, Q, K] times v, [B, H, Q, D].
Value weighted_values(Writer& w, const Value& weights, const Value& v) {
  const Shape &s = weights.type.shape, &vs = v.type.shape;
  if (s[1] == vs[2]) return w.dot_general(weights, v, Ints{0, 1}, Ints{0, 2}, Ints{3}, Ints{1}, v.type.dtype);
  Value grouped = w.reshape(weights, {s[0], vs[2], s[1] / vs[2] * s[2], s[3]});
  Value out = w.dot_general(grouped, v, Ints{0, 1}, Ints{0, 2}, Ints{3}, Ints{1}, v.type.dtype);
  return w.reshape(out, {s[0], s[1], s[2], vs[3]});
}

// Attention of a block of queries [B, Q, H, D], of which the first has the position `first` (i32 scalar).
Value attend(Writer& w, const OpCall& call, const Value& q, const Value& k, const Value& v, const Value* bias,
             const Value& first) {
  DType wide = compute_dtype(q.type.dtype);
  Value scores = query_key_products(w, q, k);
  const Shape shape = scores.type.shape;
  scores = w.binary("multiply", scores, call.attributes.get<double>("scale"));
  if (bias != nullptr) scores = w.binary("add", scores, w.broadcast_to(w.convert(*bias, wide), shape));
  if (call.attributes.get<bool>("causal")) {
    Value hidden = w.broadcast_to(hidden_by_causality(w, shape[2], shape[3], first), shape);
    scores = w.select(hidden, w.splat(kMinusInfinity, scores.type), scores);
  }
  Ints last{3};
  Value top = w.reduce("maximum", scores, last, kMinusInfinity);
  // A row whose every key is hidden has a maximum of minus infinity; with a finite one instead, its weights
  // are 0.
  top = w.binary("maximum", top, -std::numeric_limits<float>::max());
  Value e = w.unary("exponential", w.binary("subtract", scores, broadcast_back(w, top, shape, last)));
  Value sum = w.reduce("add", e, last, 0);
  // Such a row's sum is 0 too: dividing by 1 gives a result of exactly 0.
  Value none = w.compare("EQ", sum, w.splat(0, sum.type));
  sum = w.select(none, w.splat(1, sum.type), sum);
  Value weights = w.binary("divide", e, broadcast_back(w, sum, shape, last));
  return w.transpose(weighted_values(w, w.convert(weights, q.type.dtype), v), Ints{0, 2, 1, 3});
}

Value attention(Writer& w, const OpCall& call, Operands x) {
  return lower_attention(w, call, x, kMaxScoreBytes);
}

}  // namespace

std::int64_t query_block(const Shape& q, const Shape& k, std::int64_t max_score_bytes) {
  std::int64_t row = std::max<std::int64_t>(q[0] * q[2] * k[1] * 4, 1);
  return std::clamp<std::int64_t>(max_score_bytes / row, 1, std::max<std::int64_t>(q[1], 1));
}

Value lower_attention(Writer& w, const OpCall& call, Operands x, std::int64_t max_score_bytes) {
  const Value &q = x[0], &k = x[1], &v = x[2];
  const Value* bias = x.size() > 3 ? &x[3] : nullptr;
  if (call.result.shape.elements() == 0 || k.type.shape[1] == 0) return w.splat(0, call.result);
  std::int64_t queries = q.type.shape[1];
  std::int64_t block = query_block(q.type.shape, k.type.shape, max_score_bytes);
  if (block == queries) return attend(w, call, q, k, v, bias, i32(w, 0));

  std::int64_t blocks = (queries + block - 1) / block;
  return w.repeat(blocks, w.splat(0, call.result), [&](const Value& counter, const Value& out) {
    // The last block begins early enough to be whole: it computes some rows again, to the same values.
    Value first = w.binary("multiply", counter, i32(w, block));
    first = w.binary("minimum", first, i32(w, queries - block));
    Value zero = i32(w, 0);
    Shape part = q.type.shape;
    part.set(1, block);
    Value q_block = w.dynamic_slice(q, std::array{zero, first, zero, zero}, part);
    Value bias_block;
    if (bias != nullptr) {
      Shape bias_part = bias->type.shape;
      bool per_query = bias_part[2] != 1;
      bias_part.set(2, per_query ? block : 1);
      bias_block = w.dynamic_slice(*bias, std::array{zero, zero, per_query ? first : zero, zero}, bias_part);
    }
    Value y = attend(w, call, q_block, k, v, bias != nullptr ? &bias_block : nullptr, first);
    return w.dynamic_update_slice(out, y, std::array{zero, first, zero, zero});
  });
}

Value lower_rope(Writer& w, const OpCall& call, Operands x) {
  const Shape& s = x[0].type.shape;
  Value wide = w.convert(x[0], DType::kF32);
  bool halves = call.attributes.get<bool>("halves");
  int axis = halves ? 3 : 4;
  Value pairs = w.reshape(wide, {s[0], s[1], s[2], halves ? 2 : s[3] / 2, halves ? s[3] / 2 : 2});
  Value real = w.slice_axis(pairs, axis, 0, 1), imaginary = w.slice_axis(pairs, axis, 1, 2);
  Value turned = w.reshape(w.concatenate(std::array{w.unary("negate", imaginary), real}, axis), s);
  Value cos = w.broadcast(x[1], s, Ints{1, 3}), sin = w.broadcast(x[2], s, Ints{1, 3});
  Value y = w.binary("add", w.binary("multiply", wide, cos), w.binary("multiply", turned, sin));
  return w.convert(y, call.result.dtype);
}

Value lower_qk_norm_rope(Writer& w, const OpCall& call, Operands x, graph::Lowering norm,
                         graph::Lowering rope) {
  auto streams = static_cast<std::size_t>(call.attributes.get<std::int64_t>("streams"));
  std::vector<Value> parts(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(streams));
  if (call.attributes.get<bool>("norm")) {
    for (std::size_t i = 0; i < streams; ++i)
      parts[i] = norm(w, {call.op, call.attributes, x[i].type}, std::array{x[i], x[streams + i]});
  }
  Value y = streams == 1 ? parts[0] : w.concatenate(parts, 1);
  if (!call.attributes.get<bool>("rope")) return y;
  return rope(w, call, std::array{y, x[x.size() - 2], x.back()});
}

void register_attention(graph::LoweringTable& t) {
  t.add(graph::kAttention.name, attention);
  t.add(graph::kRope.name, lower_rope);
  t.add(graph::kQkNormRope.name, [](Writer& w, const OpCall& call, Operands x) {
    return lower_qk_norm_rope(w, call, x, lower_rms_norm, lower_rope);
  });
}

}  // namespace tessera::kernels
