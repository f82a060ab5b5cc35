#pragma once

#include "tessera/graph/lowering.h"

namespace tessera::kernels {

// Part of the key of the programs kept on disk. Raise it when a program that was compiled before would
// compute something else although its text is the same: a change in code that the text only calls by name.
inline constexpr int kKernelSetVersion = 1;

// How every operation is lowered, on every platform.
const graph::LoweringTable& lowerings();

// The parts of the table that serve all platforms, by concern.
void register_elementwise(graph::LoweringTable& table);
void register_shape(graph::LoweringTable& table);
void register_linear(graph::LoweringTable& table);
void register_norm(graph::LoweringTable& table);
void register_attention(graph::LoweringTable& table);
void register_diffusion(graph::LoweringTable& table);
void register_collective(graph::LoweringTable& table);
// What CPUs do in their own way.
void register_cpu(graph::LoweringTable& table);
// What TPUs do in their own way.
void register_tpu(graph::LoweringTable& table);

}  // namespace tessera::kernels
