#include <fmt/format.h>

#include "tessera/graph/shape_rules.h"
#include "tessera/kernels/common/helpers.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

using graph::OpCall;
using graph::stablehlo_type;
using graph::Value;
using graph::Writer;
using Operands = std::span<const Value>;
using Ints = std::vector<std::int64_t>;

// Adds a vector along one axis, in f32, rounding once.
Value add_bias(Writer& w, const Value& x, const Value& bias, int axis) {
  DType wide = compute_dtype(x.type.dtype);
  Value sum =
      w.binary("add", w.convert(x, wide), broadcast_along(w, w.convert(bias, wide), x.type.shape, axis));
  return w.convert(sum, x.type.dtype);
}

// The product is rounded to its dtype before the bias is added. An f32 product would save that rounding (a
// quarter of bf16 results would differ, by a unit) at the same speed on CPU, for 4 bytes of scratch an
// element.
Value linear(Writer& w, const OpCall& call, Operands x) {
  int last = x[0].type.shape.rank() - 1;
  Value y = w.dot_general(x[0], x[1], {}, {}, Ints{last}, Ints{1}, call.result.dtype);
  return x.size() < 3 ? y : add_bias(w, y, x[2], last);
}

Value matmul(Writer& w, const OpCall& call, Operands x) {
  int rank = x[0].type.shape.rank();
  Ints batch;
  for (int i = 0; i < rank - 2; ++i) batch.push_back(i);
  return w.dot_general(x[0], x[1], batch, batch, Ints{rank - 1}, Ints{rank - 2}, call.result.dtype);
}

Value conv2d(Writer& w, const OpCall& call, Operands x) {
  std::int64_t stride = call.attributes.get<std::int64_t>("stride"),
               p = call.attributes.get<std::int64_t>("padding");
  std::string_view precision = x[0].type.dtype == DType::kF32 ? "HIGHEST" : "DEFAULT";
  Value y = w.line(
      call.result,
      fmt::format("stablehlo.convolution({}, {}) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], "
                  "window = {{stride = [{}, {}], pad = [[{}, {}], [{}, {}]]}} {{batch_group_count = 1 : i64, "
                  "feature_group_count = 1 : i64, precision_config = [#stablehlo<precision {}>, "
                  "#stablehlo<precision {}>]}}",
                  x[0].name, x[1].name, stride, stride, p, p, p, p, precision, precision),
      fmt::format("({}, {}) -> {}", stablehlo_type(x[0].type), stablehlo_type(x[1].type),
                  stablehlo_type(call.result)));
  return x.size() < 3 ? y : add_bias(w, y, x[2], 1);
}

Value upsample_nearest2x(Writer& w, const OpCall& call, Operands x) {
  const Shape& s = x[0].type.shape;
  Value doubled = w.broadcast(x[0], {s[0], s[1], s[2], 2, s[3], 2}, Ints{0, 1, 2, 4});
  return w.reshape(doubled, call.result.shape);
}

// Whole rows of `table`: index vectors are the last axis of `indices`; `slice` says what a row is.
Value gather(Writer& w, const Value& table, const Value& indices, const graph::TensorType& result,
             std::string_view dimension_numbers, std::string_view slice) {
  if (result.shape.elements() == 0) return w.splat(0, result);  // the table may have no rows either
  return w.line(result,
                fmt::format("\"stablehlo.gather\"({}, {}) <{{dimension_numbers = #stablehlo.gather<{}>, "
                            "indices_are_sorted = false, slice_sizes = array<i64: {}>}}>",
                            table.name, indices.name, dimension_numbers, slice),
                fmt::format("({}, {}) -> {}", stablehlo_type(table.type), stablehlo_type(indices.type),
                            stablehlo_type(result)));
}

Value embedding(Writer& w, const OpCall& call, Operands x) {
  Shape indices = x[1].type.shape;
  int axis = indices.rank();
  indices.push_back(1);
  return gather(w, x[0], w.reshape(x[1], indices), call.result,
                fmt::format("offset_dims = [{}], collapsed_slice_dims = [0], start_index_map = [0], "
                            "index_vector_dim = {}",
                            axis, axis),
                fmt::format("1, {}", x[0].type.shape[1]));
}

Value take_rows(Writer& w, const OpCall& call, Operands x) {
  std::int64_t batch = x[0].type.shape[0];
  Value rows = w.reshape(x[1], {batch, 1});
  Value which = w.concatenate(std::array{w.iota(rows.type, 0), rows}, 1);
  return gather(
      w, x[0], which, call.result,
      "offset_dims = [1], collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1",
      fmt::format("1, 1, {}", x[0].type.shape[2]));
}

}  // namespace

void register_linear(graph::LoweringTable& t) {
  t.add(graph::kLinear.name, linear);
  t.add(graph::kMatmul.name, matmul);
  t.add(graph::kConv2d.name, conv2d);
  t.add(graph::kUpsampleNearest2x.name, upsample_nearest2x);
  t.add(graph::kEmbedding.name, embedding);
  t.add(graph::kTakeRows.name, take_rows);
}

}  // namespace tessera::kernels
