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

constexpr std::int64_t kLanes = 128, kSublanes = 16;  // of a tile of bf16
constexpr std::int64_t kSpareBytes = std::int64_t{12} << 20;

// A window on all of a small operand.
Window whole(std::string_view element, const Ints& shape) {
  return {std::string(element), shape,
          [](Writer& w, std::span<const Value>) { return std::vector<Value>(2, w.i32(0)); }};
}

HeadsShape heads_of(const Shape& x) {
  return x.rank() == 4 ? HeadsShape{x[0], x[1], x[2], x[3]} : HeadsShape{};
}

std::int64_t blocks_of(std::int64_t rows, const HeadsTiles& t) { return (rows + t.rows - 1) / t.rows; }

// The windows of the streams. While the blocks of the other stream go by, each stays at its end or start, so
// that nothing of it is moved.
std::vector<Window> stream_windows(const HeadsShape& s, const HeadsTiles& t) {
  Ints block{1, t.rows, t.groups * t.width};
  std::int64_t firsts = blocks_of(s.rows, t), groups = s.heads * s.head_size / block[2];
  if (s.second_rows == 0) {
    return {{"bf16", block, [](Writer&, std::span<const Value> at) {
               return std::vector<Value>{at[0], at[1], at[2]};
             }}};
  }
  auto chosen = [firsts](Writer& w, const Value& row, const Value& a, const Value& b) {
    return w.select(w.compare("slt", row, w.i32(firsts)), a, b);
  };
  return {
      {"bf16", block,
       [=](Writer& w, std::span<const Value> at) {
         return std::vector<Value>{at[0], chosen(w, at[1], at[1], w.i32(firsts - 1)),
                                   chosen(w, at[1], at[2], w.i32(groups - 1))};
       }},
      {"bf16", block, [=](Writer& w, std::span<const Value> at) {
         Value row = w.same("arith.subi", {at[1], w.i32(firsts)});
         return std::vector<Value>{at[0], chosen(w, at[1], w.i32(0), row), chosen(w, at[1], w.i32(0), at[2])};
       }}};
}

// x [rows, width] of f32 with each head divided by the root of its mean square, times the weight [1, width].
Value normed(Writer& w, const HeadsShape& s, const HeadsTiles& t, double eps, const Value& x,
             const Value& weight) {
  Value square = w.same("arith.mulf", {x, x});
  const Ints shape = x.type.shape;
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
  Value y = w.same("arith.mulf", {x, scale});
  return w.same("arith.mulf", {y, w.broadcast(weight, shape)});
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

struct Rotation {
  graph::Value cos, sin;
  bool halves = false;
};

// The kernel on streams [B, S, H, D], with a weight [D] for each or none.
graph::Value call_on_heads(graph::Writer& w, std::string_view name, const HeadsShape& s,
                           const HeadsWork& work, std::span<const graph::Value> streams,
                           std::span<const graph::Value> weights, const Rotation& rotation) {
  HeadsTiles tiles = choose_tiles(s);
  std::vector<graph::Value> operands;
  std::int64_t rows = s.rows + s.second_rows;
  for (const graph::Value& x : streams)
    operands.push_back(w.reshape(x, {s.batch, x.type.shape[1], s.heads * s.head_size}));
  for (const graph::Value& weight : weights)
    operands.push_back(repeated(w, w.reshape(w.convert(weight, DType::kF32), {1, s.head_size}), tiles.width));
  double n = static_cast<double>(s.batch * rows) * static_cast<double>(s.heads * s.head_size);
  mosaic::Cost cost{0, 0, 4 * n};
  if (work.eps) {
    cost.flops += 4 * n;
    cost.transcendentals += n / static_cast<double>(s.head_size);
  }
  if (work.rope) {
    operands.push_back(repeated(w, rotation.cos, tiles.width));
    operands.push_back(repeated(w, rotation.sin, tiles.width));
    operands.push_back(partners(w, tiles.width, rotation.halves ? s.head_size / 2 : 1));
    cost.flops += (2 * static_cast<double>(tiles.width) + 3) * n;
    cost.bytes += 8 * static_cast<double>(s.batch * rows * tiles.width);
  }
  graph::TensorType type{DType::kBF16, {s.batch, rows, s.heads * s.head_size}};
  std::string config = mosaic::backend_config(heads_module(s, tiles, work), cost, tiles.vmem_bytes);
  return w.reshape(call_kernel(w, name, config, operands, type), {s.batch, rows, s.heads, s.head_size});
}

}  // namespace

bool serves(const HeadsShape& s) {
  if (s.batch == 0 || s.rows == 0 || s.heads == 0 || s.head_size < 16 || s.head_size > 512) return false;
  if (s.head_size % kLanes != 0 && kLanes % s.head_size != 0) return false;
  if (s.second_rows > 0 && s.rows % kSublanes != 0) return false;
  return s.heads * s.head_size % std::max(kLanes, s.head_size) == 0;
}

HeadsTiles choose_tiles(const HeadsShape& s, std::int64_t max_rows, std::int64_t max_lanes) {
  HeadsTiles t;
  t.width = std::max(kLanes, s.head_size);
  std::int64_t groups = s.heads * s.head_size / t.width;
  t.groups = std::clamp<std::int64_t>(max_lanes / t.width, 1, groups);
  while (groups % t.groups != 0) --t.groups;
  t.rows = std::min(max_rows, (s.rows + kSublanes - 1) / kSublanes * kSublanes);
  // A block belongs to one stream.
  while (s.second_rows > 0 && s.rows % t.rows != 0) t.rows -= kSublanes;
  std::int64_t streams = s.second_rows > 0 ? 2 : 1;
  std::int64_t block = 2 * t.rows * t.groups * t.width, table = 4 * t.rows * t.width;
  t.vmem_bytes = 2 * (streams + 1) * block + 4 * table + 4 * t.width * t.width + kSpareBytes;
  return t;
}

std::string heads_module(const HeadsShape& s, const HeadsTiles& t, const HeadsWork& work) {
  std::vector<Window> windows = stream_windows(s, t);
  const std::size_t streams = windows.size();
  if (work.eps) windows.insert(windows.end(), streams, whole("f32", {1, t.width}));
  if (work.rope) {
    Window rows{"f32", Ints{t.rows, t.width}, [](Writer& w, std::span<const Value> at) {
                  return std::vector<Value>{at[1], w.i32(0)};
                }};
    windows.insert(windows.end(), {rows, rows, whole("bf16", {t.width, t.width})});
  }
  windows.push_back({"bf16", Ints{1, t.rows, t.groups * t.width}, [](Writer&, std::span<const Value> at) {
                       return std::vector<Value>{at[0], at[1], at[2]};
                     }});
  // What belongs to rows alone stays while groups go by.
  std::int64_t firsts = blocks_of(s.rows, t);
  Ints grid{s.batch, firsts + blocks_of(s.second_rows, t), s.heads * s.head_size / (t.groups * t.width)};
  std::array<std::string_view, 3> semantics{"parallel", "parallel", "parallel"};
  return mosaic::kernel(
      grid, semantics, windows, {},
      [&](Writer& w, std::span<const Value> point, std::span<const Value> references) {
        auto all_of = [&](std::size_t i) {
          return w.load(references[i], w.origin(references[i]), references[i].type.shape);
        };
        auto process = [&](std::size_t stream) {
          Value weight, cos, sin, partner;
          std::size_t table = streams;
          if (work.eps) {
            weight = all_of(table + stream);
            table += streams;
          }
          if (work.rope) {
            cos = all_of(table);
            sin = all_of(table + 1);
            partner = all_of(table + 2);
          }
          for (std::int64_t g = 0; g < t.groups; ++g) {
            std::vector<Value> at = w.origin(references[stream]);
            at[2] = w.index(g * t.width);
            Value x =
                w.shape_cast(w.load(references[stream], at, Ints{1, t.rows, t.width}), Ints{t.rows, t.width});
            if (work.eps) x = w.truncate(normed(w, s, t, *work.eps, w.extend(x), weight));
            if (work.rope) {
              Value turned = w.matmul(x, partner, /*transposed=*/false);
              Value straight = w.same("arith.mulf", {w.extend(x), cos});
              x = w.truncate(w.same("arith.addf", {straight, w.same("arith.mulf", {turned, sin})}));
            }
            w.store(w.shape_cast(x, Ints{1, t.rows, t.width}), references.back(), at);
          }
        };
        if (streams == 1) return process(0);
        w.when(w.compare("slt", point[1], w.i32(firsts)), [&] { process(0); });
        w.when(w.compare("sge", point[1], w.i32(firsts)), [&] { process(1); });
      });
}

graph::Value lower_rms_norm(graph::Writer& w, const graph::OpCall& call, std::span<const graph::Value> x) {
  HeadsShape shape = heads_of(x[0].type.shape);
  if (x.size() != 2 || call.result.dtype != DType::kBF16 || !serves(shape))
    return kernels::lower_rms_norm(w, call, x);
  return call_on_heads(w, "head_rms_norm", shape, {call.attributes.get<double>("eps"), false}, x.first(1),
                       x.subspan(1), {});
}

graph::Value lower_rope(graph::Writer& w, const graph::OpCall& call, std::span<const graph::Value> x) {
  HeadsShape shape = heads_of(x[0].type.shape);
  if (call.result.dtype != DType::kBF16 || !serves(shape)) return kernels::lower_rope(w, call, x);
  return call_on_heads(w, "rope", shape, {std::nullopt, true}, x.first(1), {},
                       {x[1], x[2], call.attributes.get<bool>("halves")});
}

graph::Value lower_qk_norm_rope(graph::Writer& w, const graph::OpCall& call,
                                std::span<const graph::Value> x) {
  auto streams = static_cast<std::size_t>(call.attributes.get<std::int64_t>("streams"));
  bool norm = call.attributes.get<bool>("norm"), rope = call.attributes.get<bool>("rope");
  HeadsShape shape = heads_of(x[0].type.shape);
  if (streams == 2) shape.second_rows = x[1].type.shape[1];
  bool joined = streams == 1 || (streams == 2 && shape.second_rows > 0);
  if (!joined || call.result.dtype != DType::kBF16 || !serves(shape))
    return kernels::lower_qk_norm_rope(w, call, x, lower_rms_norm, lower_rope);
  HeadsWork work{std::nullopt, rope};
  if (norm) work.eps = call.attributes.get<double>("eps");
  Rotation rotation;
  if (rope) rotation = {x[x.size() - 2], x.back(), call.attributes.get<bool>("halves")};
  return call_on_heads(w, norm ? rope ? "qk_norm_rope" : "qk_norm" : "rope", shape, work, x.first(streams),
                       x.subspan(streams, norm ? streams : 0), rotation);
}

}  // namespace tessera::kernels::tpu
