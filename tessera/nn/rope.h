#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/runtime/context.h"

namespace tessera::nn {

// cos and sin, f32 [S, D], for ops::rope.
struct RopeTables {
  Tensor cos, sin;
};

// Rotary tables for positions with several axes: `positions` holds axes.size() numbers a token; the axes'
// widths (even) add up to D. The angle of pair i of an axis of width d is position * theta^(-2i / d),
// computed in f64; each value stands twice, for the two members of its pair.
RopeTables rope_tables(Context& context, const graph::MeshPtr& mesh, std::span<const double> positions,
                       std::span<const std::int64_t> axes, double theta);

// Throws kDataLoss, beginning with `what`, unless `axes` (axes_dims_rope of a config) are `count` even widths
// that add up to the heads' width.
void check_rope_axes(std::span<const std::int64_t> axes, std::size_t count, std::int64_t head_dim,
                     const std::string& what);

// Rotary tables [length, width] of a language model, for ops::rope by halves: the positions 0, 1, ...; the
// angle of pair i is position * theta^(-2i / width), computed in f32 as Transformers does.
RopeTables sequence_rope_tables(Context& context, const graph::MeshPtr& mesh, std::int64_t length,
                                std::int64_t width, double theta);

}  // namespace tessera::nn
