#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>

#include "tessera/kernels/registry.h"
#include "tests/kernels/harness.h"

namespace tessera::kernels::testing {
namespace {

using graph::OpDef;
using Ints = std::vector<std::int64_t>;

constexpr std::array kFloats{DType::kF32, DType::kBF16, DType::kF16};

TEST(Registry, EveryOperationHasALoweringForEveryPlatform) {
  for (const OpDef* op : graph::all_operations()) {
    for (const char* platform : {"cpu", "tpu", "cuda", "a platform of tomorrow"}) {
      EXPECT_NO_THROW(lowerings().find(op->name, platform)) << op->name;
    }
  }
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double plain_term(double) { return 0; }
double whole(double x) { return x; }

// f and the size of the terms it is the sum of beyond its own value.
struct Unary {
  const OpDef& op;
  double (*f)(double);
  double (*term)(double) = plain_term;
  double low = -3.3e38, high = 3.3e38;  // where it is defined and wanted
};

const Unary kUnary[] = {
    {graph::kNegate, [](double x) { return -x; }},
    {graph::kExp, [](double x) { return std::exp(x); }},
    {graph::kTanh, [](double x) { return std::tanh(x); }},
    {graph::kSin, [](double x) { return std::sin(x); }, [](double) { return 1.0; }, -1e4, 1e4},
    {graph::kCos, [](double x) { return std::cos(x); }, [](double) { return 1.0; }, -1e4, 1e4},
    {graph::kSqrt, [](double x) { return std::sqrt(x); }, plain_term, 0},
    {graph::kRsqrt, [](double x) { return 1 / std::sqrt(x); }, plain_term, 1e-30},
    {graph::kSigmoid, sigmoid},
    {graph::kRelu, [](double x) { return std::max(x, 0.0); }},
    {graph::kSilu, [](double x) { return x * sigmoid(x); }},
    // 1 + erf(x) and 1 + tanh(x) cancel for negative x: f32 keeps an error of the size of x.
    {graph::kGelu, [](double x) { return x / 2 * std::erfc(-x / std::numbers::sqrt2); }, whole},
    {graph::kGeluTanh,
     [](double x) { return x * sigmoid(2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)); },
     whole},
    // The rounding of 1.702 x is a relative error of the exponential.
    {graph::kQuickGelu, [](double x) { return x * sigmoid(1.702 * x); },
     [](double x) { return 1.702 * x * x * sigmoid(1.702 * x); }},
};

TEST(Elementwise, UnaryOverTheWholeRange) {
  for (DType dtype : kFloats) {
    double top = dtype == DType::kF16 ? 6e4 : 3.3e38;
    for (const Unary& c : kUnary) {
      std::vector<double> points{0,  1,  0.5, 1e-6, 3,   5.5, 10,  17,   30,
                                 60, 80, 87,  100,  700, 1e4, 6e4, 1e20, 3.3e38};
      Array noise = random(dtype, {83}, 7, 9);
      points.insert(points.end(), noise.values.begin(), noise.values.end());
      std::vector<double> xs;
      for (double p : points) {
        for (double x : {p, -p}) {
          if (c.low <= x && x <= c.high && std::abs(x) <= top) xs.push_back(round_to(x, dtype));
        }
      }
      Expected expected;
      for (double x : xs) {
        double y = c.f(x);
        expected.values.push_back(y);
        // NaN where the plain formula says infinity times zero: never with these references.
        ASSERT_FALSE(std::isnan(y)) << c.op.name << "(" << x << ")";
        double own = std::isfinite(y) ? std::abs(y) : 0, term = std::abs(c.term(x));
        expected.terms.push_back(own + (std::isfinite(term) ? std::min(term, 3.4e38) : 0));
      }
      auto n = static_cast<std::int64_t>(xs.size());
      expect_close(run(c.op, {}, {array(dtype, {n}, xs)}), expected, {}, std::string(c.op.name));
    }
  }
}

TEST(Elementwise, UnaryOverOddShapes) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (Shape shape : {Shape{}, Shape{1}, Shape{3, 7}, Shape{17, 1, 5}, Shape{0}, Shape{3, 0, 2}}) {
      Array x = random(dtype, shape, 3);
      for (const OpDef* op : {&graph::kSilu, &graph::kGelu}) {
        Expected expected{{}, x.values};
        for (double v : x.values) {
          expected.values.push_back(op == &graph::kSilu ? v * sigmoid(v)
                                                        : v / 2 * std::erfc(-v / std::numbers::sqrt2));
        }
        expect_close(run(*op, {}, {x}), expected, {}, std::string(op->name));
      }
    }
  }
}

TEST(Elementwise, NaNAndInfinityPassThrough) {
  for (DType dtype : kFloats) {
    Array x = array(dtype, {3}, {NAN, INFINITY, -INFINITY});
    auto check = [&](const OpDef& op, double nan, double high, double low) {
      expect_close(run(op, {}, {x}), {{nan, high, low}, {1, 1, 1}}, {}, std::string(op.name));
    };
    check(graph::kExp, NAN, INFINITY, 0);
    check(graph::kTanh, NAN, 1, -1);
    check(graph::kRelu, NAN, INFINITY, 0);
    check(graph::kSigmoid, NAN, 1, 0);
    check(graph::kNegate, NAN, -INFINITY, INFINITY);
  }
}

struct Binary {
  const OpDef& op;
  double (*f)(double, double);
};

const Binary kBinary[] = {{graph::kAdd, [](double a, double b) { return a + b; }},
                          {graph::kSubtract, [](double a, double b) { return a - b; }},
                          {graph::kMultiply, [](double a, double b) { return a * b; }},
                          {graph::kDivide, [](double a, double b) { return a / b; }},
                          {graph::kMaximum, [](double a, double b) { return std::max(a, b); }},
                          {graph::kMinimum, [](double a, double b) { return std::min(a, b); }}};

// The index into an operand of the element of the result with index `flat`, by numpy's rules.
std::int64_t broadcast_index(const Shape& operand, const Shape& result, std::int64_t flat) {
  std::int64_t index = 0, stride = 1;
  for (int axis = 1; axis <= result.rank(); ++axis) {
    std::int64_t at = flat % result[-axis];
    flat /= result[-axis];
    if (axis > operand.rank()) continue;
    if (operand[-axis] != 1) index += at * stride;
    stride *= operand[-axis];
  }
  return index;
}

const std::pair<Shape, Shape> kPairs[] = {
    {{3, 7}, {3, 7}}, {{3, 1, 5}, {7, 1}}, {{17, 1}, {1, 17}},
    {{}, {2, 3}},     {{0, 3}, {1, 3}},    {{}, {}},
    {{1}, {7}},       {{3, 1}, {7}},       {{1, 0}, {3, 1}},
    {{2, 3, 4}, {4}}, {{1, 1, 1}, {5, 3}},
};

TEST(Elementwise, BinaryBroadcasts) {
  for (DType dtype : kFloats) {
    for (const Binary& c : kBinary) {
      // Every pair of shapes with one of the operations; the others share the code that broadcasts.
      bool all = &c.op == &graph::kSubtract && dtype == DType::kF32;
      for (const auto& [a_shape, b_shape] : std::span(kPairs).first(all ? std::size(kPairs) : 2)) {
        Array a = random(dtype, a_shape, 1), b = random(dtype, b_shape, 2, 1, 2);
        Shape shape = broadcast_shapes(a_shape, b_shape);
        Expected expected;
        for (std::int64_t i = 0; i < shape.elements(); ++i) {
          expected.values.push_back(
              c.f(a[broadcast_index(a_shape, shape, i)], b[broadcast_index(b_shape, shape, i)]));
        }
        // One operation, rounded once: half a unit, but for the plugin's division.
        bool divides = &c.op == &graph::kDivide;
        expect_close(run(c.op, {}, {a, b}), expected,
                     {divides ? 1.0 : 0.01, divides && dtype == DType::kF16 ? 1.0 : 0},
                     fmt::format("{} {} {}", c.op.name, to_string(a_shape), to_string(b_shape)));
      }
    }
  }
}

TEST(Elementwise, BinaryOfIntegers) {
  Array a = array(DType::kI32, {4}, {7, -7, 2147483647, 0}), b = array(DType::kI32, {4}, {2, 2, -1, 5});
  expect_equal(run(graph::kSubtract, {}, {a, b}), {5, -9, -2147483648.0, -5}, "subtract");
  expect_equal(run(graph::kDivide, {}, {a, b}), {3, -3, -2147483647.0, 0}, "divide");
  expect_equal(run(graph::kMaximum, {}, {a, b}), {7, 2, 2147483647, 5}, "maximum");
}

TEST(Elementwise, AffineRoundsOnce) {
  for (DType dtype : kFloats) {
    for (auto [m, o] : {std::pair{2.5, -1.0}, {0.18215, 0.0}, {1 / 0.3611, 0.1159}, {0.0, 1e-3}}) {
      Array x = random(dtype, {3, 17}, 5, 10);
      Expected expected;
      for (double v : x.values) {
        expected.values.push_back(v * m + o);
        expected.terms.push_back(std::abs(v * m) + std::abs(o));
      }
      expect_close(run(graph::kAffine, {{"multiplier", m}, {"offset", o}}, {x}), expected, {3, 0}, "affine");
    }
  }
}

Array cast(const Array& x, DType dtype) { return run(graph::kCast, {{"dtype", dtype}}, {x}); }

TEST(Cast, RoundsToNearestEven) {
  Array x = array(DType::kF32, {10},
                  {1 + 0x1p-8, 1 + 3 * 0x1p-8, 1 + 0x1p-8 + 0x1p-20, -(1 + 0x1p-8), 3.4e38, 1e-40, -0.0,
                   INFINITY, -INFINITY, 257});
  Array got = cast(x, DType::kBF16);
  expect_equal(got, {1, 1 + 4 * 0x1p-8, 1 + 2 * 0x1p-8, -1, INFINITY, got[5], 0, INFINITY, -INFINITY, 256},
               "bf16");
  EXPECT_LE(got[5], 1.1e-40);  // subnormal: kept or zero
  EXPECT_TRUE(std::isnan(cast(filled(DType::kF32, {1}, NAN), DType::kBF16)[0]));
}

TEST(Cast, BetweenEveryPairOfFloats) {
  for (DType from : kFloats) {
    for (DType to : kFloats) {
      Array x = random(from, {3, 17}, 11, 100);
      std::vector<double> expected;
      for (double v : x.values) expected.push_back(round_to(v, to));
      expect_equal(cast(x, to), expected, std::string(dtype_name(from)));
    }
  }
  expect_equal(cast(array(DType::kF32, {4}, {65504, 65519, 65520, 1e6}), DType::kF16),
               {65504, 65504, INFINITY, INFINITY}, "f16's range");
}

TEST(Cast, IntegersAndBooleans) {
  Array integers = array(DType::kI32, {5}, {-3, 0, 1, 127, 16777217});
  expect_equal(cast(integers, DType::kF32), {-3, 0, 1, 127, 16777216}, "i32 to f32");
  expect_equal(cast(integers, DType::kI64), integers.values, "i32 to i64");
  expect_equal(cast(integers, DType::kBool), {1, 0, 1, 1, 1}, "i32 to bool");
  Array floats = array(DType::kBF16, {6}, {-2.75, -0.5, 0, 0.5, 2.75, 255});
  expect_equal(cast(floats, DType::kI32), {-2, 0, 0, 0, 2, 255}, "bf16 to i32");
  expect_equal(cast(floats, DType::kBool), {1, 1, 0, 1, 1, 1}, "bf16 to bool");
  expect_equal(cast(array(DType::kBool, {2}, {0, 1}), DType::kBF16), {0, 1}, "bool to bf16");
  expect_equal(cast(array(DType::kU8, {3}, {0, 128, 255}), DType::kF32), {0, 128, 255}, "u8 to f32");
}

}  // namespace
}  // namespace tessera::kernels::testing
