#pragma once

#include <cstdint>
#include <span>

#include "tessera/graph/lowering.h"

namespace tessera::kernels {

// Attention computes the scores of a block of queries at a time, so that they take at most this much memory
// in f32 (one query of every head at the least).
inline constexpr std::int64_t kMaxScoreBytes = std::int64_t{64} << 20;

// The queries of one block for the given shapes: all of them if their scores fit.
std::int64_t query_block(const Shape& q, const Shape& k, std::int64_t max_score_bytes);

// attention(q, k, v[, bias]) with another limit: for tests.
graph::Value lower_attention(graph::Writer& writer, const graph::OpCall& call,
                             std::span<const graph::Value> operands, std::int64_t max_score_bytes);

// rope(x, cos, sin): (x0, x1) -> (x0 cos - x1 sin, x1 cos + x0 sin) for the pairs of the last axis, which are
// neighbours, or a half apart.
graph::Value lower_rope(graph::Writer& writer, const graph::OpCall& call,
                        std::span<const graph::Value> operands);

// qk_norm_rope(streams..., weights..., cos, sin): rms_norm, as `norm` lowers it, concatenate and rope, as
// `rope` does, one after another.
graph::Value lower_qk_norm_rope(graph::Writer& writer, const graph::OpCall& call,
                                std::span<const graph::Value> operands, graph::Lowering norm,
                                graph::Lowering rope);

}  // namespace tessera::kernels
