#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tessera/graph/writer.h"

// What the lowerings of several operations use.
namespace tessera::kernels {

// The dtype in which an operation on floats computes inside: f32 for the narrow ones.
inline DType compute_dtype(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

// A vector [D] along axis `axis` of `shape`.
inline graph::Value broadcast_along(graph::Writer& w, const graph::Value& vector, const Shape& shape,
                                    int axis) {
  std::array<std::int64_t, 1> axes{axis};
  return w.broadcast(vector, shape, axes);
}

// A value without the axes `gone` (in order), repeated along them to `shape`.
inline graph::Value broadcast_back(graph::Writer& w, const graph::Value& reduced, const Shape& shape,
                                   std::span<const std::int64_t> gone) {
  std::vector<std::int64_t> axes;
  for (int i = 0; i < shape.rank(); ++i) {
    bool kept = true;
    for (std::int64_t g : gone) kept = kept && g != i;
    if (kept) axes.push_back(i);
  }
  return w.broadcast(reduced, shape, axes);
}

// The product of the extents of the axes.
inline double count_along(const Shape& shape, std::span<const std::int64_t> axes) {
  double n = 1;
  for (std::int64_t a : axes) n *= static_cast<double>(shape[static_cast<int>(a)]);
  return n;
}

}  // namespace tessera::kernels
