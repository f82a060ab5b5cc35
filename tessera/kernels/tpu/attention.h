#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/base/shape.h"
#include "tessera/graph/lowering.h"
#include "tessera/kernels/tpu/mosaic.h"

// Attention as a kernel for TPUs: scores never leave the chip's vector memory. Queries go by blocks; for each
// the keys and values go by, chunk by chunk, with a running maximum, sum and weighted sum of every row in f32
// (the "online softmax" of Milakov and Gimelshein, arXiv:1805.02867, as in FlashAttention, arXiv:2205.14135).
namespace tessera::kernels::tpu {

// Attention of q [B, Q, H, D] on k, v [B, K, G, D], in bf16.
struct AttentionShape {
  std::int64_t batch = 1, queries = 0, keys = 0, heads = 1, key_heads = 1, head_size = 0;
  std::optional<Shape> bias;  // each extent 1 or that of [B, H, Q, K]
  bool causal = false;
  double scale = 1;
};

// How the work is cut. `pack` heads share a block of `width` lanes; with pack == 0 heads have an axis of
// their own and operands are laid out [B, H, S, D].
struct AttentionTiles {
  std::int64_t pack = 1, width = 0;
  std::int64_t query_block = 0;       // rows of a block of queries
  std::int64_t chunk = 0;             // keys that are looked at together
  std::int64_t chunks_per_block = 0;  // full chunks in a block of keys that is held in vector memory
  std::int64_t key_block = 0;         // keys in it
  std::int64_t query_blocks = 0, key_blocks = 0;
  std::int64_t tail = 0;        // keys after the last full chunk
  std::int64_t tail_chunk = 0;  // the size of the chunk that holds them
  std::int64_t vmem_bytes = 0;  // an upper bound of the vector memory needed
};

// Whether the kernel serves the shape: head sizes up to 512 that are multiples of 8, and something to attend
// to.
bool serves(const AttentionShape& shape);

// How large the parts may be: the defaults fit into the vector memory of every supported chip (64 MiB is the
// smallest, of which the compiler wants some for other things). Tests use smaller ones.
struct TileLimits {
  std::int64_t rows = 512;   // of a block of queries; twice that where keys are read again for each
  std::int64_t chunk = 512;  // a multiple of 128; half of that for wide heads, whose code grows with both
  // Keys and values held in vector memory at a time, both twice (one pair in use, one on its way).
  std::int64_t key_bytes = std::int64_t{20} << 20;
};
AttentionTiles choose_tiles(const AttentionShape& shape, const TileLimits& limits = {});

// The kernel's module. Operands: q, k and v, each [B, S, H D] or (pack == 0) [B, H, S, D] in bf16; then the
// bias if there is one, [b, h, q, K] in bf16, or in f32 if q is 1. Result like q.
std::string attention_module(const AttentionShape& shape, const AttentionTiles& tiles);

mosaic::Cost attention_cost(const AttentionShape& shape, const AttentionTiles& tiles);

// The lowering of attention(q, k, v[, bias]): the kernel where it serves, else the common decomposition.
graph::Value lower_attention(graph::Writer& writer, const graph::OpCall& call,
                             std::span<const graph::Value> operands);

}  // namespace tessera::kernels::tpu
