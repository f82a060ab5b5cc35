#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/kernels/harness.h"

namespace tessera::kernels::testing {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::array kFloats{DType::kF32, DType::kBF16};

// (x - mean) / sqrt(var + eps) over consecutive runs, or x / sqrt(mean(x^2) + eps); then weight and bias,
// whose index follows from the element's. The terms are what the subtraction of the mean cancels.
template <typename Channel>
Expected normalised(const Array& x, std::int64_t run, double eps, bool centre, const Array* weight,
                    const Array* bias, Channel channel) {
  Expected e;
  auto n = static_cast<double>(run);
  for (std::int64_t from = 0; from < x.size(); from += run) {
    double mean = 0, square = 0;
    for (std::int64_t i = from; i < from + run; ++i) mean += x[i] / n;
    if (!centre) mean = 0;
    for (std::int64_t i = from; i < from + run; ++i) square += (x[i] - mean) * (x[i] - mean) / n;
    double scale = 1 / std::sqrt(square + eps);
    for (std::int64_t i = from; i < from + run; ++i) {
      double w = weight ? (*weight)[channel(i)] : 1, b = bias ? (*bias)[channel(i)] : 0;
      e.values.push_back((x[i] - mean) * scale * w + b);
      e.terms.push_back((std::abs(x[i]) + std::abs(mean)) * scale * std::abs(w) + std::abs(b));
    }
  }
  return e;
}

struct Values {
  double scale, offset;
};
const Values kValues[] = {{1, 0}, {1, 100}, {1e4, -1e4}, {1e-3, 0}};

TEST(Norms, LayerAndRms) {
  for (DType dtype : kFloats) {
    for (Shape shape : {Shape{1}, Shape{3, 7}, Shape{2, 1, 17}, Shape{3, 129}, Shape{0, 5}, Shape{3, 0}}) {
      for (auto [scale, offset] : kValues) {
        if (shape.elements() == 0 && scale != 1) continue;
        std::int64_t d = shape[-1];
        Array x = random(dtype, shape, 1, scale, offset), w = random(dtype, {d}, 2),
              b = random(dtype, {d}, 3);
        auto channel = [d](std::int64_t i) { return i % d; };
        std::int64_t run_length = std::max<std::int64_t>(d, 1);
        expect_close(run(graph::kLayerNorm, {{"eps", 1e-6}}, {x, w, b}),
                     normalised(x, run_length, 1e-6, true, &w, &b, channel), {12, 0},
                     fmt::format("layer_norm {} {}", scale, offset));
        expect_close(run(graph::kRmsNorm, {{"eps", 1e-6}}, {x, w}),
                     normalised(x, run_length, 1e-6, false, &w, nullptr, channel), {12, 0}, "rms_norm");
      }
    }
    Array x = random(dtype, {3, 17}, 1);
    auto none = [](std::int64_t) { return 0; };
    expect_close(run(graph::kLayerNorm, {{"eps", 1e-5}}, {x}),
                 normalised(x, 17, 1e-5, true, nullptr, nullptr, none), {12, 0},
                 "layer_norm without weights");
    expect_close(run(graph::kRmsNorm, {{"eps", 1e-5}}, {x}),
                 normalised(x, 17, 1e-5, false, nullptr, nullptr, none), {12, 0}, "rms_norm without weight");
  }
}

TEST(Norms, Group) {
  struct Case {
    Shape shape;
    std::int64_t groups;
  };
  const Case cases[] = {{{1, 1}, 1},       {{2, 6, 3, 5}, 3}, {{1, 8, 17}, 8},
                        {{1, 7, 3, 3}, 1}, {{0, 4, 3}, 2},    {{1, 4, 0}, 2}};
  for (DType dtype : kFloats) {
    for (const auto& [shape, groups] : cases) {
      for (auto [scale, offset] : kValues) {
        if (shape.elements() == 0 && scale != 1) continue;
        std::int64_t c = shape[1], inner = shape.elements() / std::max<std::int64_t>(shape[0] * c, 1);
        Array x = random(dtype, shape, 1, scale, offset), w = random(dtype, {c}, 2),
              b = random(dtype, {c}, 3);
        auto channel = [&](std::int64_t i) { return i / inner % c; };
        expect_close(
            run(graph::kGroupNorm, {{"groups", groups}, {"eps", 1e-6}}, {x, w, b}),
            normalised(x, std::max<std::int64_t>(c / groups * inner, 1), 1e-6, true, &w, &b, channel),
            {12, 0}, fmt::format("group_norm {} {}", scale, offset));
      }
    }
  }
}

Expected softmax_reference(const Array& x, std::int64_t run_length) {
  Expected e;
  for (std::int64_t from = 0; from < x.size(); from += run_length) {
    double top = -INFINITY, sum = 0;
    for (std::int64_t i = from; i < from + run_length; ++i) top = std::max(top, x[i]);
    for (std::int64_t i = from; i < from + run_length; ++i) sum += std::exp(x[i] - top);
    for (std::int64_t i = from; i < from + run_length; ++i) {
      double p = std::exp(x[i] - top) / sum;
      e.values.push_back(p);
      // The rounding of x - top is a relative error of the exponential.
      e.terms.push_back(p * (1 + std::min(top - x[i], 200.0)));
    }
  }
  return e;
}

TEST(Norms, Softmax) {
  for (DType dtype : kFloats) {
    for (Shape shape : {Shape{1}, Shape{3, 7}, Shape{2, 3, 17}, Shape{1, 300}, Shape{0, 3}, Shape{3, 0}}) {
      for (double scale : {1.0, 30.0, 1e4, 3e38}) {
        Array x = random(dtype, shape, 1, scale);
        expect_close(run(graph::kSoftmax, {}, {x}),
                     softmax_reference(x, std::max<std::int64_t>(shape[-1], 1)), {12, 0},
                     fmt::format("softmax {}", scale));
      }
    }
    Array masked = array(dtype, {2, 3}, {0, -INFINITY, 0, -INFINITY, -INFINITY, -3});
    expect_close(run(graph::kSoftmax, {}, {masked}), {{0.5, 0, 0.5, 0, 0, 1}, {}}, {}, "softmax with -inf");
  }
}

// [2, 3, 5] over the axes.
TEST(Reductions, OverAnyAxes) {
  struct Case {
    Ints axes;
    std::int64_t (*at)(std::int64_t);
    std::int64_t results, each;
  };
  const Case cases[] = {{{0}, [](std::int64_t i) { return i % 15; }, 15, 2},
                        {{1}, [](std::int64_t i) { return i / 15 * 5 + i % 5; }, 10, 3},
                        {{2}, [](std::int64_t i) { return i / 5; }, 6, 5},
                        {{2, 0}, [](std::int64_t i) { return i / 5 % 3; }, 3, 10},
                        {{0, 1, 2}, [](std::int64_t) -> std::int64_t { return 0; }, 1, 30},
                        {{}, [](std::int64_t i) { return i; }, 30, 1}};
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI32, DType::kU8, DType::kI8}) {
    bool is_float = dtype_is_float(dtype);
    for (const Case& c : cases) {
      if (dtype != DType::kF32 && c.results != 3) continue;
      Array x = is_float
                    ? random(dtype, {2, 3, 5}, 1)
                    : random(dtype, {2, 3, 5}, 1, dtype == DType::kU8 ? 4 : 8, dtype == DType::kU8 ? 4 : -1);
      auto n = static_cast<std::size_t>(c.results);
      Expected sum{std::vector<double>(n), std::vector<double>(n)}, mean = sum;
      std::vector<double> top(n, -INFINITY);
      for (std::int64_t i = 0; i < 30; ++i) {
        auto at = static_cast<std::size_t>(c.at(i));
        sum.values[at] += x[i];
        sum.terms[at] += std::abs(x[i]);
        mean.values[at] += x[i] / static_cast<double>(c.each);
        mean.terms[at] += std::abs(x[i]) / static_cast<double>(c.each);
        top[at] = std::max(top[at], x[i]);
      }
      graph::Attributes axes{{"axes", c.axes}};
      expect_equal(run(graph::kMax, axes, {x}), top, "max");
      if (is_float) {
        expect_close(run(graph::kSum, axes, {x}), sum, {4, 0}, "sum");
        expect_close(run(graph::kMean, axes, {x}), mean, {4, 0}, "mean");
      } else {
        expect_equal(run(graph::kSum, axes, {x}), sum.values, "sum");
      }
    }
  }
}

TEST(Reductions, BF16SumsAreKeptInF32) {
  // In bf16 the sum would stop at 256.
  Array ones = filled(DType::kBF16, {1000}, 1);
  expect_equal(run(graph::kSum, {{"axes", Ints{0}}}, {ones}), {1000}, "sum");
  expect_equal(run(graph::kMean, {{"axes", Ints{0}}}, {ones}), {1}, "mean");
}

TEST(Reductions, OfNothing) {
  Array none = filled(DType::kF32, {0, 2}, 0);
  expect_equal(run(graph::kSum, {{"axes", Ints{0}}}, {none}), {0, 0}, "sum");
  expect_equal(run(graph::kMax, {{"axes", Ints{0}}}, {none}), {-INFINITY, -INFINITY}, "max");
  EXPECT_TRUE(std::isnan(run(graph::kMean, {{"axes", Ints{0}}}, {none})[0]));
}

}  // namespace
}  // namespace tessera::kernels::testing
