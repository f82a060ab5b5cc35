#pragma once

#include <string_view>
#include <vector>

#include "tests/kernels/harness.h"

namespace tessera::kernels::testing {

// Runs the text of a kernel (tessera/kernels/tpu/mosaic.h) on the CPU, one point of the grid after another,
// as a TPU would: a window is copied in when its block begins, the result's window is copied out when it
// ends, and what of a window lies beyond its array is `beyond` coming in and dropped going out. Scratch and
// the result begin as NaN. Throws std::runtime_error for what it does not know, for types that disagree and
// for accesses out of range, so it is also a check of the text.
//
// Sums of products are kept in double and rounded once to f32; everything else rounds as written.
Array run_kernel(std::string_view module, const std::vector<Array>& operands, const graph::TensorType& result,
                 double beyond);

}  // namespace tessera::kernels::testing
