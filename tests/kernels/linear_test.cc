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

// Adds the product of two elements to element `at` and to its terms.
void accumulate(Expected& e, std::int64_t at, double a, double b) {
  e.values[static_cast<std::size_t>(at)] += a * b;
  e.terms[static_cast<std::size_t>(at)] += std::abs(a * b);
}

Expected zeros(std::int64_t n) {
  std::vector<double> z(static_cast<std::size_t>(n));
  return {z, z};
}

// x [M, K] times w [N, K] transposed, plus bias [N].
Expected linear_reference(const Array& x, const Array& w, const Array* bias) {
  std::int64_t n = w.type.shape[0], k = w.type.shape[1];
  std::int64_t m = 1;
  for (int i = 0; i + 1 < x.type.shape.rank(); ++i) m *= x.type.shape[i];
  Expected e = zeros(m * n);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t l = 0; l < k; ++l) accumulate(e, i * n + j, x[i * k + l], w[j * k + l]);
      if (bias) accumulate(e, i * n + j, (*bias)[j], 1);
    }
  }
  return e;
}

TEST(Linear, OverOddShapes) {
  const std::pair<Shape, std::int64_t> cases[] = {{{1}, 1},       {{3, 7}, 17},    {{2, 3, 17}, 5},
                                                  {{17, 129}, 3}, {{1, 1, 65}, 1}, {{0, 3}, 5},
                                                  {{3, 0}, 5},    {{3, 5}, 0}};
  for (DType dtype : kFloats) {
    for (const auto& [shape, n] : cases) {
      Array x = random(dtype, shape, 1), w = random(dtype, {n, shape[-1]}, 2), b = random(dtype, {n}, 3);
      // Sums in f32, rounded once; adding a bias rounds the product once more.
      expect_close(run(graph::kLinear, {}, {x, w}), linear_reference(x, w, nullptr), {12, 0}, "linear");
      expect_close(run(graph::kLinear, {}, {x, w, b}), linear_reference(x, w, &b), {12, 1},
                   "linear with bias");
    }
  }
}

TEST(Linear, LargeValues) {
  for (DType dtype : kFloats) {
    Array x = random(dtype, {3, 33}, 1, 1e4), w = random(dtype, {7, 33}, 2, 1e4);
    expect_close(run(graph::kLinear, {}, {x, w}), linear_reference(x, w, nullptr), {12, 0}, "linear");
  }
}

TEST(Linear, MatmulOverOddShapes) {
  const std::array<std::int64_t, 4> cases[] = {
      {1, 1, 1, 1}, {3, 7, 17, 5}, {2, 1, 33, 9}, {0, 2, 3, 4}, {2, 3, 0, 4}};
  for (DType dtype : kFloats) {
    for (const auto& [batch, m, k, n] : cases) {
      Array a = random(dtype, {batch, m, k}, 1), b = random(dtype, {batch, k, n}, 2);
      Expected e = zeros(batch * m * n);
      for (std::int64_t i = 0; i < batch * m * n * k; ++i) {
        std::int64_t l = i % k, at = i / k, column = at % n, row = at / n;
        accumulate(e, at, a[row * k + l], b[(row / m * k + l) * n + column]);
      }
      expect_close(run(graph::kMatmul, {}, {a, b}), e, {12, 0}, "matmul");
    }
  }
}

// 1 + 2^-20 is lost where f32 is multiplied as bf16 or tf32.
TEST(Linear, F32MeansF32) {
  Array a = array(DType::kF32, {1, 2}, {1 + 0x1p-20, -1}), ones = filled(DType::kF32, {1, 2}, 1);
  expect_equal(run(graph::kLinear, {}, {a, ones}), {0x1p-20}, "linear");
  Array image = array(DType::kF32, {1, 2, 1, 1}, a.values), kernel = filled(DType::kF32, {1, 2, 1, 1}, 1);
  expect_equal(
      run(graph::kConv2d, {{"stride", std::int64_t{1}}, {"padding", std::int64_t{0}}}, {image, kernel}),
      {0x1p-20}, "conv2d");
}

struct Convolution {
  Shape x, w;
  std::int64_t stride, padding;
};

Expected convolution_reference(const Convolution& c, const Shape& out, const Array& x, const Array& w,
                               const Array& b) {
  Expected e = zeros(out.elements());
  std::int64_t channels = c.w[1], kh = c.w[2], kw = c.w[3], h = c.x[2], width = c.x[3];
  for (std::int64_t at = 0; at < out.elements(); ++at) {
    std::int64_t column = at % out[3], row = at / out[3] % out[2], o = at / (out[3] * out[2]) % out[1],
                 image = at / (out[3] * out[2] * out[1]);
    accumulate(e, at, b[o], 1);
    for (std::int64_t tap = 0; tap < channels * kh * kw; ++tap) {
      std::int64_t dc = tap % kw, dr = tap / kw % kh, i = tap / (kw * kh);
      std::int64_t r = row * c.stride + dr - c.padding, s = column * c.stride + dc - c.padding;
      if (r < 0 || r >= h || s < 0 || s >= width) continue;
      accumulate(e, at, x[((image * channels + i) * h + r) * width + s],
                 w[((o * channels + i) * kh + dr) * kw + dc]);
    }
  }
  return e;
}

TEST(Linear, Convolutions) {
  const Convolution cases[] = {{{1, 1, 1, 1}, {1, 1, 1, 1}, 1, 0}, {{2, 3, 7, 5}, {4, 3, 3, 3}, 1, 1},
                               {{1, 5, 9, 8}, {3, 5, 3, 3}, 2, 1}, {{1, 17, 3, 3}, {7, 17, 1, 1}, 1, 0},
                               {{1, 2, 5, 9}, {3, 2, 2, 3}, 3, 2}, {{0, 2, 3, 3}, {4, 2, 3, 3}, 1, 1},
                               {{1, 2, 0, 4}, {3, 2, 3, 3}, 1, 2}};
  for (DType dtype : kFloats) {
    for (const Convolution& c : cases) {
      Array x = random(dtype, c.x, 1), w = random(dtype, c.w, 2), b = random(dtype, {c.w[0]}, 3);
      Array y = run(graph::kConv2d, {{"stride", c.stride}, {"padding", c.padding}}, {x, w, b});
      expect_close(y, convolution_reference(c, y.type.shape, x, w, b), {12, 1},
                   fmt::format("conv2d {} {}", to_string(c.x), to_string(c.w)));
    }
  }
}

TEST(Gathers, EmbeddingsForIdsOfAnyRankAndOutOfRange) {
  for (DType dtype : kFloats) {
    for (Shape ids_shape : {Shape{}, Shape{5}, Shape{1, 5}, Shape{0}, Shape{2, 0}}) {
      Array table = random(dtype, {7, 3}, 1), ids{{DType::kI32, ids_shape}, {}};
      const double some[] = {6, 0, 9, -1, 3};
      for (std::int64_t i = 0; i < ids_shape.elements(); ++i) ids.values.push_back(some[i]);
      std::vector<double> expected;
      for (double id : ids.values) {
        auto row = static_cast<std::int64_t>(std::clamp(id, 0.0, 6.0));
        for (int j = 0; j < 3; ++j) expected.push_back(table[row * 3 + j]);
      }
      expect_equal(run(graph::kEmbedding, {}, {table, ids}), expected, "embedding");
    }
  }
}

TEST(Gathers, NoIdsOfAnEmptyTable) {
  Array none = run(graph::kEmbedding, {}, {filled(DType::kF32, {0, 3}, 0), array(DType::kI32, {0}, {})});
  EXPECT_EQ(none.type.shape, (Shape{0, 3}));
}

TEST(Gathers, TakeRows) {
  Array x = random(DType::kBF16, {3, 5, 2}, 1), rows = array(DType::kI32, {3}, {4, 0, 7});
  expect_equal(run(graph::kTakeRows, {}, {x, rows}), {x[8], x[9], x[10], x[11], x[28], x[29]}, "take_rows");
  EXPECT_EQ(
      run(graph::kTakeRows, {}, {random(DType::kF32, {0, 5, 2}, 1), array(DType::kI32, {0}, {})}).size(), 0);
}

TEST(Gathers, Upsample) {
  Array x = random(DType::kBF16, {2, 1, 2, 3}, 1);
  std::vector<double> expected;
  for (std::int64_t i = 0; i < 2 * 4 * 6; ++i) expected.push_back(x[(i / 12) * 3 + i % 6 / 2]);
  expect_equal(run(graph::kUpsampleNearest2x, {}, {x}), expected, "upsample");
}

TEST(Moves, KeepEveryElement) {
  for (DType dtype : {DType::kBF16, DType::kF32, DType::kI32, DType::kBool, DType::kU8}) {
    Array x{{dtype, {2, 3, 4}}, {}};
    for (int i = 0; i < 24; ++i) x.values.push_back(dtype == DType::kBool ? i % 3 == 0 : i);
    std::vector<double> turned, cut, padded, repeated;
    for (std::int64_t i = 0; i < 24; ++i) turned.push_back(x[i / 6 + i % 6 / 3 * 12 + i % 3 * 4]);
    for (std::int64_t i = 0; i < 8; ++i) cut.push_back(x[i / 4 * 12 + 4 + i % 4]);
    for (std::int64_t i = 0; i < 2 * 3 * 6; ++i)
      padded.push_back(i % 6 < 1 || i % 6 > 4 ? 0 : x[i / 6 * 4 + i % 6 - 1]);
    expect_equal(run(graph::kTranspose, {{"permutation", Ints{2, 0, 1}}}, {x}), turned, "transpose");
    expect_equal(run(graph::kSlice, {{"begin", Ints{0, 1, 0}}, {"end", Ints{2, 2, 4}}}, {x}), cut, "slice");
    expect_equal(run(graph::kPad, {{"low", Ints{0, 0, 1}}, {"high", Ints{0, 0, 1}}}, {x}), padded, "pad");
    expect_equal(run(graph::kReshape, {{"shape", Ints{4, 6}}}, {x}), x.values, "reshape");
    for (int copy = 0; copy < 2; ++copy) repeated.insert(repeated.end(), x.values.begin(), x.values.end());
    expect_equal(run(graph::kBroadcastTo, {{"shape", Ints{2, 2, 3, 4}}}, {x}), repeated, "broadcast_to");
    expect_equal(run(graph::kConcatenate, {{"axis", std::int64_t{0}}}, {x, x}), repeated, "concatenate");
  }
}

}  // namespace
}  // namespace tessera::kernels::testing
