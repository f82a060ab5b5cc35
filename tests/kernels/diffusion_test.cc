#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/kernels/harness.h"

namespace tessera::kernels::testing {
namespace {

constexpr std::array kFloats{DType::kF32, DType::kBF16};

TEST(Diffusion, ModulateAndGatedAdd) {
  for (DType dtype : kFloats) {
    for (Shape s : {Shape{1, 1, 1}, Shape{2, 3, 7}, Shape{3, 17, 5}, Shape{0, 2, 3}, Shape{2, 0, 3}}) {
      Array x = random(dtype, s, 1, 10), r = random(dtype, s, 2, 10), a = random(dtype, {s[0], s[2]}, 3, 2),
            b = random(dtype, {s[0], s[2]}, 4, 2);
      Expected modulated, gated;
      for (std::int64_t i = 0; i < x.size(); ++i) {
        std::int64_t at = i / (s[1] * s[2]) * s[2] + i % s[2];
        modulated.values.push_back(x[i] * (1 + b[at]) + a[at]);
        modulated.terms.push_back(std::abs(x[i]) * (1 + std::abs(b[at])) + std::abs(a[at]));
        gated.values.push_back(r[i] + a[at] * x[i]);
        gated.terms.push_back(std::abs(r[i]) + std::abs(a[at] * x[i]));
      }
      expect_close(run(graph::kModulate, {}, {x, a, b}), modulated, {3, 0}, "modulate");
      expect_close(run(graph::kGatedAdd, {}, {r, a, x}), gated, {3, 0}, "gated_add");
    }
  }
}

TEST(Diffusion, TimestepEmbedding) {
  Array t = array(DType::kF32, {6}, {0, 0.25, 1, 17, 602.151, 1000});
  for (auto [dim, flip, shift] :
       {std::tuple{256, true, 0.0}, {256, false, 1.0}, {2, true, 0.0}, {34, false, 0.0}}) {
    Expected e;
    std::int64_t half = dim / 2;
    for (double time : t.values) {
      for (std::int64_t i = 0; i < dim; ++i) {
        // The exponent is rounded to f32 before its exponential is taken; it is at most ln(10000) = 9.2.
        double angle = time * std::exp(-std::log(1e4) * static_cast<double>(i % half) /
                                       (static_cast<double>(half) - shift));
        e.values.push_back((i < half) == flip ? std::cos(angle) : std::sin(angle));
        e.terms.push_back(1 + angle);
      }
    }
    graph::Attributes attributes{{"dim", std::int64_t{dim}},
                                 {"flip_sin_to_cos", flip},
                                 {"downscale_freq_shift", shift},
                                 {"max_period", 1e4}};
    expect_close(run(graph::kTimestepEmbedding, attributes, {t}), e, {12, 0}, "timestep_embedding");
  }
}

TEST(Diffusion, AllFinite) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    auto finite = [&](Shape shape, std::vector<double> values) {
      return run(graph::kAllFinite, {}, {array(dtype, shape, std::move(values))})[0];
    };
    EXPECT_EQ(finite({2, 3}, {0, -1, 65504, -65504, 1e-7, 3}), 1);
    EXPECT_EQ(finite({}, {1}), 1);
    EXPECT_EQ(finite({0, 3}, {}), 1);
    for (double bad : std::initializer_list<double>{INFINITY, -INFINITY, NAN}) {
      EXPECT_EQ(finite({}, {bad}), 0);
      EXPECT_EQ(finite({2, 3}, {1, 2, 3, 4, 5, bad}), 0);
    }
  }
}

// The byte for x, each step rounded to the dtype.
double pixel(double x, DType dtype) {
  double y = round_to(round_to(x * 0.5, dtype) + 0.5, dtype);
  return std::nearbyint(round_to(std::clamp(y, 0.0, 1.0) * 255, DType::kF32));
}

// All bf16 numbers in [-2, 2], and many f32 ones, among them the halves between bytes.
TEST(Diffusion, ToImageIsExact) {
  for (DType dtype : kFloats) {
    std::vector<double> xs{0, 1, -1, 5, -5, INFINITY, -INFINITY};
    for (int i = 0; i < 512; ++i) xs.push_back(i / 255.0 - 1);
    if (dtype == DType::kBF16) {
      for (double step = 0x1p-7, at = 1; at > 0x1p-30; at /= 2, step /= 2) {
        for (int i = 0; i < 128; ++i) xs.insert(xs.end(), {at + i * step, -(at + i * step)});
      }
    }
    while (xs.size() % 6 != 0) xs.push_back(0.3);
    auto width = static_cast<std::int64_t>(xs.size()) / 6;
    Array x = array(dtype, {2, 3, 1, width}, xs);
    std::vector<double> expected;
    for (std::int64_t i = 0; i < x.size(); ++i) {
      std::int64_t channel = i % 3, column = i / 3 % width, image = i / (3 * width);
      expected.push_back(pixel(x[(image * 3 + channel) * width + column], dtype));
    }
    Array got = run(graph::kToImage, {}, {x});
    EXPECT_EQ(got.type.shape, (Shape{2, 1, width, 3}));
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < got.size(); ++i) wrong += got[i] != expected[static_cast<std::size_t>(i)];
    EXPECT_EQ(wrong, 0) << dtype_name(dtype) << ": of " << got.size();
  }
}

}  // namespace
}  // namespace tessera::kernels::testing
