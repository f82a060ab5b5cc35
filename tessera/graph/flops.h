#pragma once

#include "tessera/graph/node.h"

namespace tessera::graph {

// Floating-point operations of a node that multiplies matrices (linear, matmul, conv2d, attention), a
// multiplication and an addition counting as two; 0 for every other operation. Attention counts all pairs of
// query and key, causal or not.
double product_flops(const Node& node);

}  // namespace tessera::graph
