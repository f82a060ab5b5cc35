#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tessera/base/half.h"
#include "tessera/ops/ops.h"
#include "tessera/runtime/context.h"

// Arrays in double precision beside tensors on the device, for testing operations.
namespace tessera::testing {

struct Array {
  Shape shape;
  std::vector<double> values;
};

// One context for a test program, so that a program is compiled once.
inline Context& context() {
  static Context c;
  return c;
}
inline graph::MeshPtr mesh() { return context().mesh(); }

inline double round_to(double value, DType dtype) {
  auto f = static_cast<float>(value);
  return static_cast<double>(dtype == DType::kBF16 ? round_to_bf16(f) : f);
}

// Normal values of the scale, rounded to the dtype.
inline Array random_array(const Shape& shape, DType dtype, double scale = 1, unsigned seed = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0, scale);
  Array out{shape, {}};
  for (std::int64_t i = 0; i < shape.elements(); ++i) out.values.push_back(round_to(normal(engine), dtype));
  return out;
}

inline Tensor upload(const Array& array, DType dtype) {
  std::vector<float> f(array.values.begin(), array.values.end());
  return ops::cast(context().from_f32(f, array.shape, mesh()), dtype);
}

// Each element within `ulps` units of the dtype's precision of its own size or of `scale`, whichever is
// larger.
inline void expect_near(const Tensor& mine, const Array& reference, double scale, double ulps,
                        const std::string& what) {
  ASSERT_EQ(to_string(mine.shape()), to_string(reference.shape)) << what;
  double eps = mine.dtype() == DType::kBF16 ? 0x1p-8 : 0x1p-23;
  std::vector<float> values = mine.to_f32();
  int wrong = 0;
  for (std::size_t i = 0; i < values.size() && wrong < 5; ++i) {
    double r = reference.values[i], d = std::abs(static_cast<double>(values[i]) - r);
    if (!(d <= ulps * eps * std::max(std::abs(r), scale))) {
      ++wrong;
      ADD_FAILURE() << what << " " << dtype_name(mine.dtype()) << ": element " << i << " is " << values[i]
                    << ", not " << r;
    }
  }
}

}  // namespace tessera::testing
