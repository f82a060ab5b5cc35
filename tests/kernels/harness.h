#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/graph/program.h"
#include "tessera/graph/shape_rules.h"
#include "tessera/pjrt/pjrt.h"

// Runs one operation's lowering on the CPU plugin and compares it with loops in double precision.
namespace tessera::kernels::testing {

// An array as doubles, each a value of `type.dtype`.
struct Array {
  graph::TensorType type;
  std::vector<double> values;

  double& operator[](std::int64_t i) { return values[static_cast<std::size_t>(i)]; }
  double operator[](std::int64_t i) const { return values[static_cast<std::size_t>(i)]; }
  std::int64_t size() const { return static_cast<std::int64_t>(values.size()); }
};

// value as the dtype holds it (f32, bf16, f16, integers).
double round_to(double value, DType dtype);
// The unit roundoff: half the distance between 1 and the next value.
double roundoff(DType dtype);

Array array(DType dtype, Shape shape, std::vector<double> values);
Array filled(DType dtype, Shape shape, double value);
// Uniform in [-1, 1) * scale + offset.
Array random(DType dtype, Shape shape, unsigned seed, double scale = 1, double offset = 0);

// The result of `op` on the device, with the project's lowerings or those given.
Array run(const graph::OpDef& op, graph::Attributes attributes, const std::vector<Array>& operands,
          const graph::LoweringTable* lowerings = nullptr);
// The program's text, with arguments of these types, for a platform.
std::string text_of(const graph::OpDef& op, graph::Attributes attributes,
                    const std::vector<graph::TensorType>& operands,
                    const graph::LoweringTable* lowerings = nullptr, std::string_view platform = "cpu");

// What a result should be, and the size of the terms that it came from (for results of cancellation).
struct Expected {
  std::vector<double> values, terms;
};

// Each element within   roundoff(dtype) |value| + slack   of `expected`, where slack is
// f32_units 2^-24 |term| + dtype_units roundoff(dtype) |term|. Values beyond the dtype's range are expected
// as infinities, NaN as NaN; results too small to be normal may be zero.
struct Tolerance {
  double f32_units = 8;
  double dtype_units = 0;
};
void expect_close(const Array& mine, const Expected& expected, Tolerance tolerance, const std::string& what);

// Equal in every element.
void expect_equal(const Array& mine, const std::vector<double>& expected, const std::string& what);

}  // namespace tessera::kernels::testing
