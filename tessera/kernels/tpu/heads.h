#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tessera/graph/lowering.h"
#include "tessera/kernels/tpu/mosaic.h"

// What is done to each head of queries and keys on their way from a projection to attention, as kernels for
// TPUs. They see [B, S, H D], as projections give it and as attention takes it: the compiler on its own would
// move every number to [B, S, H, D] and back, and pairs of neighbours, of 128 lanes each, take 64 times their
// memory.
namespace tessera::kernels::tpu {

struct HeadsShape {
  std::int64_t batch = 1, rows = 0, heads = 1, head_size = 0;
};

// Heads come in groups that fill whole lanes, and some groups make a block of a window.
struct HeadsTiles {
  std::int64_t width = 0;   // lanes of a group: one head, or several that fill 128 lanes
  std::int64_t groups = 0;  // in a block
  std::int64_t rows = 0;    // in a block
  std::int64_t vmem_bytes = 0;
};

// Whether the kernels serve the shape: head sizes that divide 128 or are multiples of it, and as many heads
// as fill whole lanes.
bool serves(const HeadsShape& shape);
HeadsTiles choose_tiles(const HeadsShape& shape, std::int64_t max_rows = 256, std::int64_t max_lanes = 1024);

// The module of rms_norm over each head. Operands: x [B, S, H D] in bf16, the weight [1, width] in f32
// (repeated for each head of a group). Result like x.
std::string rms_norm_module(const HeadsShape& shape, const HeadsTiles& tiles, double eps);

// The module of the rotary embedding. Operands: x [B, S, H D] in bf16; cos and sin [S, width] in f32; a
// matrix [width, width] in bf16 that puts to each place its partner in the pair, negated for the first of the
// two. Result like x.
std::string rope_module(const HeadsShape& shape, const HeadsTiles& tiles);

// The lowerings of rms_norm(x, weight) and rope(x, cos, sin): the kernels where x is [B, S, H, D] in bf16 and
// they serve, else the common decomposition.
graph::Value lower_rms_norm(graph::Writer& writer, const graph::OpCall& call,
                            std::span<const graph::Value> operands);
graph::Value lower_rope(graph::Writer& writer, const graph::OpCall& call,
                        std::span<const graph::Value> operands);

}  // namespace tessera::kernels::tpu
