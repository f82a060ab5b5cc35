#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "tessera/kernels/tpu/attention.h"

namespace tessera::kernels::tpu {
namespace {

using mosaic::Type;
using mosaic::Value;
using mosaic::Window;
using mosaic::Writer;
using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kLanes = 128;
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
// The running maximum begins at a finite number, so that rows whose every key is hidden keep weights of 0.
constexpr double kLowest = -std::numeric_limits<float>::max();

// Writes the body of the kernel.
class Body {
 public:
  Body(const AttentionShape& shape, const AttentionTiles& tiles, Writer& writer, std::span<const Value> grid,
       std::span<const Value> references)
      : shape_(shape), tiles_(tiles), w_(writer), row_block_(grid[2]), key_block_(grid[3]) {
    std::size_t i = 0;
    q_ = references[i++];
    k_ = references[i++];
    v_ = references[i++];
    if (shape.bias) bias_ = references[i++];
    out_ = references[i++];
    for (std::int64_t head = 0; head < heads(); ++head) {
      states_.push_back({references[i], references[i + 1], references[i + 2]});
      i += 3;
    }
  }

  void write() {
    w_.when(w_.compare("eq", key_block_, w_.i32(0)), [&] { initialise(); });
    for (std::int64_t head = 0; head < heads(); ++head) attend(head);
    w_.when(w_.compare("eq", key_block_, w_.i32(tiles_.key_blocks - 1)), [&] { finish(); });
  }

 private:
  // What a head carries from chunk to chunk: the maximum and the sum of each row, repeated over the lanes,
  // and the weighted sum of values.
  struct State {
    Value maximum, sum, values;
  };

  std::int64_t heads() const { return std::max<std::int64_t>(tiles_.pack, 1); }
  Ints block(std::int64_t rows, std::int64_t columns) const {
    return tiles_.pack == 0 ? Ints{1, 1, rows, columns} : Ints{1, rows, columns};
  }

  Value read(const Value& ref) { return w_.load(ref, w_.origin(ref), ref.type.shape); }
  void write_back(const Value& x, const Value& ref) { w_.store(x, ref, w_.origin(ref)); }

  void initialise() {
    for (const State& s : states_) {
      write_back(w_.splat(kLowest, s.maximum.type.shape), s.maximum);
      write_back(w_.splat(0, s.sum.type.shape), s.sum);
      write_back(w_.splat(0, s.values.type.shape), s.values);
    }
  }

  // i1 [rows, width], true for the lanes of a head.
  Value lanes_of(std::int64_t head, std::int64_t rows) {
    Ints shape{rows, tiles_.width};
    Value lane = w_.iota(shape, 1);
    Value from = w_.compare("sge", lane, whole(head * shape_.head_size, shape));
    Value to = w_.compare("slt", lane, whole((head + 1) * shape_.head_size, shape));
    return w_.same("arith.andi", {from, to});
  }

  Value whole(std::int64_t value, const Ints& shape) { return w_.broadcast(w_.i32(value), shape); }

  // The queries of a head. Heads that share lanes are told apart by zeros in the others' lanes: the product
  // with the keys of all of them then sees one.
  Value queries(std::int64_t head) {
    Ints shape{tiles_.query_block, tiles_.width};
    Value q = w_.shape_cast(read(q_), shape);
    if (heads() == 1) return q;
    return w_.truncate(w_.select(lanes_of(head, shape[0]), w_.extend(q), w_.splat(0, shape)));
  }

  void attend(std::int64_t head) {
    Value q = queries(head);
    std::int64_t all = shape_.keys / tiles_.chunk;
    // Chunks of this block of keys that are full and, if causal, not hidden from every row.
    Value end = w_.i32(std::min(all, tiles_.chunks_per_block));
    if (tiles_.key_blocks > 1) end = w_.same("arith.minsi", {end, left(w_.i32(all))});
    if (shape_.causal) {
      Value last_row = w_.same("arith.muli", {row_block_, w_.i32(tiles_.query_block)});
      last_row = w_.same("arith.addi", {last_row, w_.i32(tiles_.query_block - 1 + tiles_.chunk)});
      end = w_.same("arith.minsi", {end, left(w_.same("arith.divsi", {last_row, w_.i32(tiles_.chunk)}))});
    }
    if (all > 0) {
      w_.loop(w_.i32(0), end, [&](const Value& i) {
        Value first = w_.same("arith.muli", {i, w_.i32(tiles_.chunk)});
        chunk(head, q, first, tiles_.chunk, /*tail=*/false);
      });
    }
    if (tiles_.tail == 0) return;
    std::int64_t at = all - (tiles_.key_blocks - 1) * tiles_.chunks_per_block;  // its place in the last block
    auto tail = [&] { chunk(head, q, w_.i32(at * tiles_.chunk), tiles_.tail_chunk, /*tail=*/true); };
    if (tiles_.key_blocks == 1) return tail();
    w_.when(w_.compare("eq", key_block_, w_.i32(tiles_.key_blocks - 1)), tail);
  }

  // The number of a chunk counted from the first of this block of keys.
  Value left(const Value& chunk_number) {
    if (tiles_.key_blocks == 1) return chunk_number;
    return w_.same("arith.subi",
                   {chunk_number, w_.same("arith.muli", {key_block_, w_.i32(tiles_.chunks_per_block)})});
  }

  // Takes in `size` keys from `first` (i32) of this block.
  void chunk(std::int64_t head, const Value& q, const Value& first, std::int64_t size, bool tail) {
    Value at = w_.to_index(first, std::min(tiles_.chunk, kLanes));
    Value k = keys(k_, at, size), v = keys(v_, at, size);
    // Beyond the last key memory holds anything, and 0 times NaN is NaN.
    if (tail && tiles_.tail != size) {
      Value there = w_.compare("slt", w_.iota(v.type.shape, 0), whole(tiles_.tail, v.type.shape));
      v = w_.truncate(w_.select(there, w_.extend(v), w_.splat(0, v.type.shape)));
    }
    Value s = scores(head, q, k, first, at, tail && tiles_.tail != size);
    accumulate(states_[static_cast<std::size_t>(head)], s, v);
  }

  Value keys(const Value& ref, const Value& at, std::int64_t size) {
    std::vector<Value> from = w_.origin(ref);
    from[from.size() - 2] = at;
    return w_.shape_cast(w_.load(ref, from, block(size, tiles_.width)), Ints{size, tiles_.width});
  }

  Value scores(std::int64_t head, const Value& q, const Value& k, const Value& first, const Value& at,
               bool hide_tail) {
    Value s = w_.matmul(q, k, /*transposed=*/true);
    const Ints& shape = s.type.shape;
    s = w_.same("arith.mulf", {s, w_.splat(scale(), shape)});
    if (shape_.bias) s = w_.same("arith.addf", {s, bias(head, at, shape)});
    if (!hide_tail && !shape_.causal) return s;
    Value column = w_.iota(shape, 1);
    if (hide_tail) {
      s = w_.select(w_.compare("slt", column, whole(tiles_.tail, shape)), s, w_.splat(kMinusInfinity, shape));
    }
    if (shape_.causal) {
      Value row = w_.same("arith.addi", {w_.iota(shape, 0), offset(row_block_, tiles_.query_block, shape)});
      column =
          w_.same("arith.addi", {column, offset(key_block_, tiles_.chunks_per_block * tiles_.chunk, shape)});
      column = w_.same("arith.addi", {column, w_.broadcast(first, shape)});
      s = w_.select(w_.compare("sle", column, row), s, w_.splat(kMinusInfinity, shape));
    }
    return s;
  }

  Value offset(const Value& number, std::int64_t size, const Ints& shape) {
    return w_.broadcast(w_.same("arith.muli", {number, w_.i32(size)}), shape);
  }

  // Weights are powers of 2 of scores in units of log 2, which saves a product each. A bias may hold the most
  // negative number there is, so with one they stay powers of e.
  double scale() const { return shape_.bias ? shape_.scale : shape_.scale * std::numbers::log2e; }
  Value power(const Value& x) { return w_.same(shape_.bias ? "math.exp" : "math.exp2", {x}); }

  Value bias(std::int64_t head, const Value& at, const Ints& shape) {
    const Ints& extents = bias_.type.shape;
    std::vector<Value> from = w_.origin(bias_);
    if (extents[1] > 1) from[1] = w_.index(head);
    from[3] = at;
    Ints part{extents[2], shape[1]};
    Value b = w_.shape_cast(w_.load(bias_, from, Ints{1, 1, part[0], part[1]}), part);
    if (b.type.element == "bf16") b = w_.extend(b);
    return extents[2] == shape[0] ? b : w_.broadcast(b, shape);
  }

  void accumulate(const State& state, const Value& s, const Value& v) {
    std::int64_t rows = tiles_.query_block;
    Ints lanes{rows, kLanes};
    Value before = read(state.maximum);
    Value top = w_.same("arith.maximumf", {before, w_.broadcast(w_.reduce_rows("maximumf", s), lanes)});
    Value weights = power(w_.same("arith.subf", {s, w_.first_column(top, s.type.shape[1])}));
    Value fade = power(w_.same("arith.subf", {before, top}));
    write_back(top, state.maximum);
    Value sum = w_.broadcast(w_.reduce_rows("add", weights), lanes);
    sum = w_.same("arith.addf", {w_.same("arith.mulf", {fade, read(state.sum)}), sum});
    write_back(sum, state.sum);
    Value values = w_.same("arith.mulf", {read(state.values), w_.first_column(fade, tiles_.width)});
    values = w_.same("arith.addf", {values, w_.matmul(w_.truncate(weights), v, /*transposed=*/false)});
    write_back(values, state.values);
  }

  void finish() {
    Value out;
    for (std::int64_t head = 0; head < heads(); ++head) {
      const State& state = states_[static_cast<std::size_t>(head)];
      Value sum = read(state.sum);
      const Ints lanes = sum.type.shape;
      sum = w_.select(w_.compare("oeq", sum, w_.splat(0, lanes)), w_.splat(1, lanes), sum);
      Value y = w_.same("arith.divf", {read(state.values), w_.first_column(sum, tiles_.width)});
      out = head == 0 ? y : w_.select(lanes_of(head, tiles_.query_block), y, out);
    }
    write_back(w_.shape_cast(w_.truncate(out), out_.type.shape), out_);
  }

  const AttentionShape& shape_;
  const AttentionTiles& tiles_;
  Writer& w_;
  Value row_block_, key_block_;
  Value q_, k_, v_, bias_, out_;
  std::vector<State> states_;
};

std::vector<Window> windows(const AttentionShape& s, const AttentionTiles& t) {
  // The grid is [batch, heads (or groups of heads that share lanes), blocks of queries, blocks of keys].
  auto operand = [&](std::int64_t rows, int rows_axis, std::int64_t heads_for_one) {
    return Window{"bf16", t.pack == 0 ? Ints{1, 1, rows, t.width} : Ints{1, rows, t.width},
                  [=](Writer& w, std::span<const Value> grid) {
                    Value head = grid[1];
                    if (heads_for_one > 1) head = w.same("arith.divsi", {head, w.i32(heads_for_one)});
                    const Value& row = grid[static_cast<std::size_t>(rows_axis)];
                    if (t.pack == 0) return std::vector<Value>{grid[0], head, row, w.i32(0)};
                    return std::vector<Value>{grid[0], row, head};
                  }};
  };
  std::int64_t group = s.heads / s.key_heads;
  std::vector<Window> out{operand(t.query_block, 2, 1), operand(t.key_block, 3, group),
                          operand(t.key_block, 3, group)};
  if (s.bias) {
    Shape b = *s.bias;
    bool per_row = b[2] > 1;
    Ints block{1, b[1] > 1 ? std::max<std::int64_t>(t.pack, 1) : 1, per_row ? t.query_block : 1, t.key_block};
    out.push_back({per_row ? "bf16" : "f32", block, [b](Writer& w, std::span<const Value> grid) {
                     Value zero = w.i32(0);
                     return std::vector<Value>{b[0] > 1 ? grid[0] : zero, b[1] > 1 ? grid[1] : zero,
                                               b[2] > 1 ? grid[2] : zero, grid[3]};
                   }});
  }
  out.push_back(operand(t.query_block, 2, 1));
  return out;
}

}  // namespace

std::string attention_module(const AttentionShape& shape, const AttentionTiles& tiles) {
  std::int64_t heads = std::max<std::int64_t>(tiles.pack, 1);
  Ints grid{shape.batch, shape.heads / heads, tiles.query_blocks, tiles.key_blocks};
  std::vector<std::string_view> semantics{"parallel", "parallel", "parallel", "arbitrary"};
  std::vector<Type> scratch;
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int64_t columns : {kLanes, kLanes, tiles.width}) {
      scratch.push_back({Type::Kind::kMemref, "f32", {tiles.query_block, columns}});
    }
  }
  return mosaic::kernel(grid, semantics, windows(shape, tiles), scratch,
                        [&](Writer& w, std::span<const Value> point, std::span<const Value> references) {
                          Body(shape, tiles, w, point, references).write();
                        });
}

}  // namespace tessera::kernels::tpu
