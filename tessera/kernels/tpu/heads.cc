#include "tessera/kernels/tpu/heads.h"

#include <algorithm>
#include <array>
#include <vector>

#include "tessera/kernels/common/attention.h"
#include "tessera/kernels/common/norm.h"
#include "tessera/kernels/tpu/call.h"

namespace tessera::kernels::tpu {
namespace {

using mosaic::Value;
using mosaic::Window;
using mosaic::Writer;
using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kLanes = 128;
constexpr std::int64_t kSpareBytes = std::int64_t{12} << 20;

// The grid is [batch, blocks of rows, blocks of groups]: what belongs to rows alone stays while groups go by.
std::string over_groups(const HeadsShape& s, const HeadsTiles& t, std::span<const Window> tables,
                        const std::function<Value(Writer&, const Value&, std::span<const Value>)>& group) {
  std::int64_t groups = s.heads * s.head_size / t.width;
  Ints grid{s.batch, (s.rows + t.rows - 1) / t.rows, groups / t.groups};
  std::array<std::string_view, 3> semantics{"parallel", "parallel", "parallel"};
  Window heads{"bf16", Ints{1, t.rows, t.groups * t.width}, [](Writer&, std::span<const Value> at) {
                 return std::vector<Value>{at[0], at[1], at[2]};
               }};
  std::vector<Window> windows{heads};
  windows.insert(windows.end(), tables.begin(), tables.end());
  windows.push_back(heads);
  return mosaic::kernel(
      grid, semantics, windows, {},
      [&](Writer& w, std::span<const Value>, std::span<const Value> references) {
        std::vector<Value> loaded;
        for (const Value& table : references.subspan(1, tables.size()))
          loaded.push_back(w.load(table, w.origin(table), table.type.shape));
        for (std::int64_t g = 0; g < t.groups; ++g) {
          std::vector<Value> at = w.origin(references[0]);
          at[2] = w.index(g * t.width);
          Value x = w.load(references[0], at, Ints{1, t.rows, t.width});
          Value y = group(w, w.shape_cast(x, Ints{t.rows, t.width}), loaded);
          w.store(w.shape_cast(w.truncate(y), Ints{1, t.rows, t.width}), references.back(), at);
        }
      });
}

// A window on all of a small operand.
Window whole(std::string_view element, const Ints& shape) {
  return {std::string(element), shape,
          [](Writer& w, std::span<const Value>) { return std::vector<Value>(2, w.i32(0)); }};
}

double elements(const HeadsShape& s) {
  return static_cast<double>(s.batch * s.rows) * static_cast<double>(s.heads * s.head_size);
}

HeadsShape heads_of(const Shape& x) {
  return x.rank() == 4 ? HeadsShape{x[0], x[1], x[2], x[3]} : HeadsShape{};
}

// Calls a kernel on x [B, S, H, D] as [B, S, H D].
graph::Value call_on_heads(graph::Writer& w, std::string_view name, const std::string& module,
                           const mosaic::Cost& cost, const HeadsTiles& tiles, const graph::Value& x,
                           std::vector<graph::Value> tables) {
  const Shape& s = x.type.shape;
  tables.insert(tables.begin(), w.reshape(x, {s[0], s[1], s[2] * s[3]}));
  graph::TensorType type = tables[0].type;
  std::string config = mosaic::backend_config(module, cost, tiles.vmem_bytes);
  return w.reshape(call_kernel(w, name, config, tables, type), s);
}

// x [N, D] beside itself: [N, width].
graph::Value repeated(graph::Writer& w, const graph::Value& x, std::int64_t width) {
  std::vector<graph::Value> parts(static_cast<std::size_t>(width / x.type.shape[1]), x);
  return parts.size() == 1 ? x : w.concatenate(parts, 1);
}

// [width, width]: row i holds 1, or -1 if i is the second of its pair, at its partner's place. Partners are
// `apart` places from each other.
graph::Value partners(graph::Writer& w, std::int64_t width, std::int64_t apart) {
  graph::TensorType type{DType::kF32, {width, width}};
  auto d = static_cast<double>(apart);
  graph::Value row = w.iota(type, 0);
  graph::Value pair = w.unary("floor", w.binary("multiply", row, 1 / (2 * d)));
  graph::Value half = w.unary("floor", w.binary("multiply", row, 1 / d));
  // 1 for the first of a pair, -1 for the second
  graph::Value sign =
      w.binary("add", w.binary("subtract", w.binary("multiply", pair, 4), w.binary("multiply", half, 2)), 1);
  graph::Value partner = w.binary("add", row, w.binary("multiply", sign, d));
  graph::Value there = w.compare("EQ", w.iota(type, 1), partner);
  return w.convert(w.select(there, sign, w.splat(0, type)), DType::kBF16);
}

}  // namespace

bool serves(const HeadsShape& s) {
  if (s.batch == 0 || s.rows == 0 || s.heads == 0 || s.head_size < 16 || s.head_size > 512) return false;
  if (s.head_size % kLanes != 0 && kLanes % s.head_size != 0) return false;
  return s.heads * s.head_size % std::max(kLanes, s.head_size) == 0;
}

HeadsTiles choose_tiles(const HeadsShape& s, std::int64_t max_rows, std::int64_t max_lanes) {
  HeadsTiles t;
  t.width = std::max(kLanes, s.head_size);
  std::int64_t groups = s.heads * s.head_size / t.width;
  t.groups = std::clamp<std::int64_t>(max_lanes / t.width, 1, groups);
  while (groups % t.groups != 0) --t.groups;
  t.rows = std::min(max_rows, (s.rows + 15) / 16 * 16);
  std::int64_t block = 2 * t.rows * t.groups * t.width, table = 4 * t.rows * t.width;
  t.vmem_bytes = 4 * block + 4 * table + 4 * t.width * t.width + kSpareBytes;
  return t;
}

std::string rms_norm_module(const HeadsShape& s, const HeadsTiles& t, double eps) {
  std::array tables{whole("f32", {1, t.width})};
  return over_groups(s, t, tables, [&](Writer& w, const Value& x, std::span<const Value> table) {
    Value wide = w.extend(x), square = w.same("arith.mulf", {wide, wide});
    const Ints shape = wide.type.shape;
    Value scale;
    for (std::int64_t head = 0; head < t.width / s.head_size; ++head) {
      // The lanes of one head, of which the others count as zeros.
      Value mine, part = square;
      if (s.head_size < t.width) {
        Value lane = w.iota(shape, 1);
        Value from = w.compare("sge", lane, w.broadcast(w.i32(head * s.head_size), shape));
        Value to = w.compare("slt", lane, w.broadcast(w.i32((head + 1) * s.head_size), shape));
        mine = w.same("arith.andi", {from, to});
        part = w.select(mine, square, w.splat(0, shape));
      }
      Value sum = w.broadcast(w.reduce_rows("add", part), shape);
      Value mean = w.same("arith.mulf", {sum, w.splat(1.0 / static_cast<double>(s.head_size), shape)});
      Value root = w.same("math.rsqrt", {w.same("arith.addf", {mean, w.splat(eps, shape)})});
      scale = head == 0 ? root : w.select(mine, root, scale);
    }
    Value y = w.same("arith.mulf", {wide, scale});
    return w.same("arith.mulf", {y, w.broadcast(table[0], shape)});
  });
}

std::string rope_module(const HeadsShape& s, const HeadsTiles& t) {
  Window rows{"f32", Ints{t.rows, t.width}, [](Writer& w, std::span<const Value> at) {
                return std::vector<Value>{at[1], w.i32(0)};
              }};
  std::array tables{rows, rows, whole("bf16", {t.width, t.width})};
  return over_groups(s, t, tables, [&](Writer& w, const Value& x, std::span<const Value> table) {
    Value turned = w.matmul(x, table[2], /*transposed=*/false);
    Value straight = w.same("arith.mulf", {w.extend(x), table[0]});
    return w.same("arith.addf", {straight, w.same("arith.mulf", {turned, table[1]})});
  });
}

graph::Value lower_rms_norm(graph::Writer& w, const graph::OpCall& call, std::span<const graph::Value> x) {
  HeadsShape shape = heads_of(x[0].type.shape);
  if (x.size() != 2 || call.result.dtype != DType::kBF16 || !serves(shape))
    return kernels::lower_rms_norm(w, call, x);
  HeadsTiles tiles = choose_tiles(shape);
  graph::Value weight = w.reshape(w.convert(x[1], DType::kF32), {1, shape.head_size});
  double n = elements(shape);
  return call_on_heads(w, "head_rms_norm", rms_norm_module(shape, tiles, call.attributes.get<double>("eps")),
                       {4 * n, n / static_cast<double>(shape.head_size), 4 * n}, tiles, x[0],
                       {repeated(w, weight, tiles.width)});
}

graph::Value lower_rope(graph::Writer& w, const graph::OpCall& call, std::span<const graph::Value> x) {
  HeadsShape shape = heads_of(x[0].type.shape);
  if (call.result.dtype != DType::kBF16 || !serves(shape)) return kernels::lower_rope(w, call, x);
  HeadsTiles tiles = choose_tiles(shape);
  double n = elements(shape), tables = 8 * static_cast<double>(shape.rows * tiles.width);
  std::int64_t apart = call.attributes.get<bool>("halves") ? shape.head_size / 2 : 1;
  return call_on_heads(
      w, "rope", rope_module(shape, tiles),
      {(2 * static_cast<double>(tiles.width) + 3) * n, 0, 4 * n + static_cast<double>(shape.batch) * tables},
      tiles, x[0],
      {repeated(w, x[1], tiles.width), repeated(w, x[2], tiles.width), partners(w, tiles.width, apart)});
}

}  // namespace tessera::kernels::tpu
