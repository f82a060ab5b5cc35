#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tessera/graph/lowering.h"
#include "tessera/kernels/tpu/mosaic.h"

// What is done to each head of queries and keys on their way from a projection to attention, as kernels for
// TPUs. They see [B, S, H D], as projections give it and as attention takes it: the compiler on its own would
// move every number to [B, S, H, D] and back, and pairs of neighbours, of 128 lanes each, take 64 times their
// memory.
namespace tessera::kernels::tpu {

// x is one stream [B, S, H D], or two with S = rows and S = second_rows, whose results are joined.
struct HeadsShape {
  std::int64_t batch = 1, rows = 0, heads = 1, head_size = 0, second_rows = 0;
};

// What is done to x: the RMS norm of each head, then the rotary embedding.
struct HeadsWork {
  std::optional<double> eps;  // of the norm
  bool rope = false;
};

// Heads come in groups that fill whole lanes, and some groups make a block of a window.
struct HeadsTiles {
  std::int64_t width = 0;   // lanes of a group: one head, or several that fill 128 lanes
  std::int64_t groups = 0;  // in a block
  std::int64_t rows = 0;    // in a block
  std::int64_t vmem_bytes = 0;
};

// Whether the kernel serves the shape: head sizes that divide 128 or are multiples of it, as many heads as
// fill whole lanes, and, of two streams, a first one whose rows are a multiple of 16.
bool serves(const HeadsShape& shape);
HeadsTiles choose_tiles(const HeadsShape& shape, std::int64_t max_rows = 256, std::int64_t max_lanes = 1024);

// The module. Operands: the streams [B, S, H D] in bf16; for the norm a weight [1, width] in f32 for each
// stream (repeated for each head of a group); for the rotary embedding cos and sin [S, width] in f32, S the
// rows of both streams, and a matrix [width, width] in bf16 that puts to each place its partner in the pair,
// negated for the first of the two. Result: [B, S, H D] in bf16. What is normed is rounded before it is
// rotated.
std::string heads_module(const HeadsShape& shape, const HeadsTiles& tiles, const HeadsWork& work);

// The lowerings of rms_norm(x, weight), rope(x, cos, sin) and qk_norm_rope: the kernel where x is
// [B, S, H, D] in bf16 and it serves, else the common decomposition.
graph::Value lower_rms_norm(graph::Writer& writer, const graph::OpCall& call,
                            std::span<const graph::Value> operands);
graph::Value lower_rope(graph::Writer& writer, const graph::OpCall& call,
                        std::span<const graph::Value> operands);
graph::Value lower_qk_norm_rope(graph::Writer& writer, const graph::OpCall& call,
                                std::span<const graph::Value> operands);

}  // namespace tessera::kernels::tpu
