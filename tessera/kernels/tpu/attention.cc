#include "tessera/kernels/tpu/attention.h"

#include <algorithm>

#include "tessera/graph/shape_rules.h"
#include "tessera/kernels/common/attention.h"
#include "tessera/kernels/tpu/call.h"

namespace tessera::kernels::tpu {
namespace {

using graph::OpCall;
using graph::Writer;
using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kLanes = 128, kMaxHeadSize = 512;
constexpr std::int64_t kWide = 256;  // heads wider than this take smaller chunks
constexpr std::int64_t kSpareBytes = std::int64_t{12} << 20;

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}
std::int64_t divide_up(std::int64_t n, std::int64_t d) { return (n + d - 1) / d; }

graph::Value in_lanes(Writer& w, const graph::Value& x, std::int64_t pack) {
  const Shape& s = x.type.shape;
  if (pack > 0) return w.reshape(x, {s[0], s[1], s[2] * s[3]});
  return w.transpose(x, Ints{0, 2, 1, 3});
}

graph::Value from_lanes(Writer& w, const graph::Value& x, const Shape& shape, std::int64_t pack) {
  if (pack > 0) return w.reshape(x, shape);
  return w.transpose(x, Ints{0, 2, 1, 3});
}

// [b, h, q, K]: the kernel reads every key's.
graph::Value bias_operand(Writer& w, const graph::Value& bias, std::int64_t keys) {
  Shape full = bias.type.shape;
  full.set(3, keys);
  graph::Value b = w.broadcast_to(bias, full);
  return full[2] == 1 ? w.convert(b, DType::kF32) : b;
}

}  // namespace

bool serves(const AttentionShape& s) {
  return s.batch > 0 && s.queries > 0 && s.keys > 0 && s.heads > 0 && s.head_size >= 8 &&
         s.head_size <= kMaxHeadSize && s.head_size % 8 == 0;
}

AttentionTiles choose_tiles(const AttentionShape& s, const TileLimits& limits) {
  AttentionTiles t;
  // Heads can stand side by side in the lanes if a whole number of them fills the lanes, or if there is one.
  if (s.head_size % kLanes == 0 || s.heads == 1) {
    t.pack = 1;
  } else if (s.head_size >= 32 && kLanes % s.head_size == 0 && s.heads == s.key_heads &&
             s.heads % (kLanes / s.head_size) == 0) {
    t.pack = kLanes / s.head_size;
  } else {
    t.pack = 0;
  }
  t.width = std::max<std::int64_t>(t.pack, 1) * s.head_size;
  t.chunk =
      std::min(t.width > kWide ? std::max(limits.chunk / 2, kLanes) : limits.chunk, round_up(s.keys, kLanes));
  t.tail = s.keys % t.chunk;
  t.tail_chunk = round_up(t.tail, kLanes);

  std::int64_t chunk_bytes = 2 * 2 * 2 * t.chunk * round_up(t.width, kLanes);
  bool per_row_bias = s.bias && (*s.bias)[2] > 1;
  std::int64_t bias_row = s.bias ? 2 * (per_row_bias ? 2 : 4 * 8) * std::max<std::int64_t>(t.pack, 1) : 0;
  t.query_block = std::min(limits.rows, round_up(s.queries, 16));
  if (s.bias) chunk_bytes += t.chunk * bias_row * (per_row_bias ? t.query_block : 1);
  std::int64_t chunks = divide_up(s.keys, t.chunk);
  std::int64_t held = std::max<std::int64_t>(std::min(chunks, limits.key_bytes / chunk_bytes), 1);
  t.key_blocks = divide_up(chunks, held);
  t.chunks_per_block = divide_up(chunks, t.key_blocks);
  t.key_blocks = divide_up(chunks, t.chunks_per_block);
  t.key_block = t.chunks_per_block * t.chunk;
  if (t.key_blocks == 1 && t.tail > 0) t.key_block = s.keys / t.chunk * t.chunk + t.tail_chunk;
  if (t.key_blocks > 1 && !s.bias && t.width <= kWide)
    t.query_block = std::min(2 * limits.rows, round_up(s.queries, 16));
  t.query_blocks = divide_up(s.queries, t.query_block);

  std::int64_t lanes = round_up(t.width, kLanes), heads = std::max<std::int64_t>(t.pack, 1);
  std::int64_t state = heads * t.query_block * (2 * kLanes + lanes) * 4;
  std::int64_t rows = 2 * 2 * 2 * t.query_block * lanes;  // queries and result, both twice
  std::int64_t scores = 4 * t.query_block * t.chunk * 4;
  t.vmem_bytes = divide_up(t.key_block, t.chunk) * chunk_bytes + state + rows + scores + kSpareBytes;
  return t;
}

mosaic::Cost attention_cost(const AttentionShape& s, const AttentionTiles& t) {
  auto heads = static_cast<double>(s.batch * s.heads);
  auto pairs = heads * static_cast<double>(s.queries) * static_cast<double>(s.keys) * (s.causal ? 0.5 : 1);
  auto d = static_cast<double>(s.head_size);
  mosaic::Cost cost{4 * pairs * d, pairs, 0};
  double row = 2 * (t.pack == 0 ? static_cast<double>(round_up(s.head_size, kLanes)) : d);
  cost.bytes = 2 * heads * static_cast<double>(s.queries) * row;
  // Keys and values stay while the grid's inner axes move, if all of them are held at once.
  double readers = t.key_blocks == 1 ? static_cast<double>(s.batch * s.key_heads)
                                     : heads * static_cast<double>(t.query_blocks);
  cost.bytes += 2 * readers * static_cast<double>(s.keys) * row;
  if (s.bias) {
    bool per_row = (*s.bias)[2] > 1;
    double heads_read = (*s.bias)[0] == 1 && (*s.bias)[1] == 1 ? 1 : heads;
    cost.bytes +=
        heads_read * static_cast<double>(s.keys) * (per_row ? 2 * static_cast<double>(s.queries) : 4);
  }
  return cost;
}

graph::Value lower_attention(Writer& w, const OpCall& call, std::span<const graph::Value> x) {
  const Shape &q = x[0].type.shape, &k = x[1].type.shape;
  AttentionShape shape{q[0],
                       q[1],
                       k[1],
                       q[2],
                       k[2],
                       q[3],
                       std::nullopt,
                       call.attributes.get<bool>("causal"),
                       call.attributes.get<double>("scale")};
  if (call.result.dtype != DType::kBF16 || !serves(shape)) {
    return kernels::lower_attention(w, call, x, kMaxScoreBytes);
  }
  std::vector<graph::Value> operands;
  if (x.size() > 3) shape.bias = x[3].type.shape;
  AttentionTiles tiles = choose_tiles(shape);
  for (int i = 0; i < 3; ++i) operands.push_back(in_lanes(w, x[static_cast<std::size_t>(i)], tiles.pack));
  if (shape.bias) operands.push_back(bias_operand(w, x[3], shape.keys));
  std::string config =
      mosaic::backend_config(attention_module(shape, tiles), attention_cost(shape, tiles), tiles.vmem_bytes);
  graph::Value y = call_kernel(w, "attention", config, operands, operands[0].type);
  return from_lanes(w, y, call.result.shape, tiles.pack);
}

}  // namespace tessera::kernels::tpu
