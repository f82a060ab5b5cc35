#pragma once

#include <span>

#include "tessera/graph/lowering.h"

namespace tessera::kernels {

// rms_norm(x, weight) over the last axis, in f32 inside.
graph::Value lower_rms_norm(graph::Writer& writer, const graph::OpCall& call,
                            std::span<const graph::Value> operands);

}  // namespace tessera::kernels
