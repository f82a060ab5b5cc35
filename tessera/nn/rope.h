#pragma once

#include <cstdint>
#include <span>
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

}  // namespace tessera::nn
