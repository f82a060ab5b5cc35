#pragma once

#include "tessera/graph/lowering.h"

namespace tessera::kernels {

// How every operation is lowered, on every platform.
const graph::LoweringTable& lowerings();

// The parts of the table that serve all platforms, by concern.
void register_elementwise(graph::LoweringTable& table);
void register_shape(graph::LoweringTable& table);
void register_linear(graph::LoweringTable& table);
void register_norm(graph::LoweringTable& table);
void register_attention(graph::LoweringTable& table);
void register_diffusion(graph::LoweringTable& table);

}  // namespace tessera::kernels
