#include "tessera/ops/ops.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numbers>

#include "tessera/base/error.h"
#include "tests/testing/numeric.h"

// Every operation against loops in double precision, in f32 and bf16, over odd shapes.
namespace tessera::ops {
namespace {

using testing::Array;
using testing::expect_near;
using testing::random_array;
using testing::upload;

constexpr DType kDtypes[] = {DType::kF32, DType::kBF16};

Array map(const Array& x, const std::function<double(double)>& f) {
  Array out = x;
  for (double& v : out.values) v = f(v);
  return out;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct UnaryCase {
  const char* name;
  Tensor (*op)(const Tensor&);
  double (*reference)(double);
  bool positive = false;
};

const UnaryCase kUnary[] = {
    {"negate", negate, [](double x) { return -x; }},
    {"exp", ops::exp, [](double x) { return std::exp(x); }},
    {"tanh", ops::tanh, [](double x) { return std::tanh(x); }},
    {"sin", ops::sin, [](double x) { return std::sin(x); }},
    {"cos", ops::cos, [](double x) { return std::cos(x); }},
    {"sqrt", ops::sqrt, [](double x) { return std::sqrt(x); }, true},
    {"rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }, true},
    {"sigmoid", ops::sigmoid, sigmoid},
    {"relu", relu, [](double x) { return std::max(x, 0.0); }},
    {"silu", silu, [](double x) { return x * sigmoid(x); }},
    {"gelu", gelu, [](double x) { return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0))); }},
    {"gelu_tanh", gelu_tanh,
     [](double x) {
       return x * 0.5 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
     }},
    {"quick_gelu", quick_gelu, [](double x) { return x * sigmoid(1.702 * x); }},
};

TEST(Elementwise, UnaryOperations) {
  for (DType dtype : kDtypes) {
    for (const UnaryCase& c : kUnary) {
      Array x = random_array({3, 17}, dtype, 3);
      if (c.positive) x = map(x, [](double v) { return std::abs(v) + 0.01; });
      if (c.positive) x = map(x, [dtype](double v) { return testing::round_to(v, dtype); });
      // 1 + erf(x) cancels for negative x, in the reference implementation as well: errors are of the size of
      // x.
      expect_near(c.op(upload(x, dtype)), map(x, c.reference), std::string(c.name) == "gelu" ? 3 : 0.3, 8,
                  c.name);
    }
  }
}

TEST(Elementwise, LargeValuesStayFinite) {
  for (DType dtype : kDtypes) {
    Array x{{4}, {-1e4, 1e4, -80, 80}};
    for (double& v : x.values) v = testing::round_to(v, dtype);
    for (const UnaryCase& c : kUnary) {
      std::string name = c.name;
      if (name == "exp" || name == "sqrt" || name == "rsqrt" || name == "sin" || name == "cos") continue;
      expect_near(c.op(upload(x, dtype)), map(x, c.reference), 1, 8, name);
    }
  }
}

TEST(Elementwise, BinaryOperationsBroadcast) {
  struct Case {
    const char* name;
    Tensor (*op)(const Tensor&, const Tensor&);
    double (*f)(double, double);
  };
  const Case cases[] = {{"add", add, [](double a, double b) { return a + b; }},
                        {"subtract", subtract, [](double a, double b) { return a - b; }},
                        {"multiply", multiply, [](double a, double b) { return a * b; }},
                        {"divide", divide, [](double a, double b) { return a / b; }},
                        {"maximum", maximum, [](double a, double b) { return std::max(a, b); }},
                        {"minimum", minimum, [](double a, double b) { return std::min(a, b); }}};
  for (DType dtype : kDtypes) {
    for (const Case& c : cases) {
      Array a = random_array({3, 1, 5}, dtype, 1, 1), b = random_array({7, 1}, dtype, 1, 2);
      Array reference{{3, 7, 5}, {}};
      for (std::size_t i = 0; i < 3; ++i) {
        for (std::size_t j = 0; j < 7; ++j) {
          for (std::size_t k = 0; k < 5; ++k)
            reference.values.push_back(c.f(a.values[i * 5 + k], b.values[j]));
        }
      }
      expect_near(c.op(upload(a, dtype), upload(b, dtype)), reference, 0.01, 2, c.name);
      EXPECT_EQ(c.op(upload({{0, 3}, {}}, dtype), upload({{3}, {1, 2, 3}}, dtype)).to_f32().size(), 0u)
          << c.name;
    }
  }
}

TEST(Elementwise, AffineAndCast) {
  Array x = random_array({5, 3}, DType::kF32);
  expect_near(affine(upload(x, DType::kF32), 2.5, -1), map(x, [](double v) { return 2.5 * v - 1; }), 1, 2,
              "affine");
  Array rounded = map(x, [](double v) { return testing::round_to(v, DType::kBF16); });
  expect_near(cast(cast(upload(x, DType::kF32), DType::kBF16), DType::kF32), rounded, 0, 0,
              "cast rounds to even");
}

TEST(Shapes, Moves) {
  Array x = random_array({2, 3, 4}, DType::kF32);
  auto at = [&](std::size_t i, std::size_t j, std::size_t k) { return x.values[(i * 3 + j) * 4 + k]; };
  Tensor t = upload(x, DType::kF32);
  Array transposed{{4, 2, 3}, {}}, sliced{{2, 2, 4}, {}}, padded{{2, 4, 4}, {}};
  for (std::size_t k = 0; k < 4; ++k) {
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::size_t j = 0; j < 3; ++j) transposed.values.push_back(at(i, j, k));
    }
  }
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t j = 1; j < 3; ++j) {
      for (std::size_t k = 0; k < 4; ++k) sliced.values.push_back(at(i, j, k));
    }
  }
  expect_near(transpose(t, {2, 0, 1}), transposed, 0, 0, "transpose");
  expect_near(slice(t, -2, 1, 3), sliced, 0, 0, "slice");
  expect_near(concatenate({slice(t, 1, 0, 1), slice(t, 1, 1, 3)}, 1), x, 0, 0, "concatenate undoes slice");
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t j = 0; j < 4; ++j) {
      for (std::size_t k = 0; k < 4; ++k) padded.values.push_back(j == 0 ? 0 : at(i, j - 1, k));
    }
  }
  expect_near(pad(t, {0, 1, 0}, {0, 0, 0}), padded, 0, 0, "pad");
  expect_near(reshape(t, {4, -1}), {{4, 6}, x.values}, 0, 0, "reshape");
  EXPECT_EQ(split(t, 2, 2)[1].shape(), (Shape{2, 3, 2}));
}

Array matmul_reference(const Array& a, const Array& b) {
  std::size_t batch = 1, rank = a.shape.dims().size();
  for (std::size_t i = 0; i + 2 < rank; ++i) batch *= static_cast<std::size_t>(a.shape[static_cast<int>(i)]);
  auto m = static_cast<std::size_t>(a.shape[-2]), k = static_cast<std::size_t>(a.shape[-1]),
       n = static_cast<std::size_t>(b.shape[-1]);
  Array out{a.shape, {}};
  out.shape.set(-1, b.shape[-1]);
  for (std::size_t i = 0; i < batch; ++i) {
    for (std::size_t r = 0; r < m; ++r) {
      for (std::size_t c = 0; c < n; ++c) {
        double sum = 0;
        for (std::size_t j = 0; j < k; ++j)
          sum += a.values[(i * m + r) * k + j] * b.values[(i * k + j) * n + c];
        out.values.push_back(sum);
      }
    }
  }
  return out;
}

TEST(Products, MatmulAndLinear) {
  for (DType dtype : kDtypes) {
    for (auto [m, k, n] : {std::tuple{1, 1, 1}, {3, 17, 5}, {7, 64, 33}}) {
      Array a = random_array({2, m, k}, dtype, 1, 1), b = random_array({2, k, n}, dtype, 1, 2);
      Array reference = matmul_reference(a, b);
      double scale = std::sqrt(static_cast<double>(k));
      expect_near(matmul(upload(a, dtype), upload(b, dtype)), reference, scale, 8, "matmul");

      Array w = random_array({n, k}, dtype, 1, 3), bias = random_array({n}, dtype, 1, 4);
      Array turned{{2, k, n}, {}};
      for (int copy = 0; copy < 2; ++copy) {
        for (int j = 0; j < k; ++j) {
          for (int c = 0; c < n; ++c) turned.values.push_back(w.values[static_cast<std::size_t>(c * k + j)]);
        }
      }
      Array y = matmul_reference(a, turned);
      expect_near(linear(upload(a, dtype), upload(w, dtype)), y, scale, 8, "linear");
      for (std::size_t i = 0; i < y.values.size(); ++i)
        y.values[i] += bias.values[i % static_cast<std::size_t>(n)];
      expect_near(linear(upload(a, dtype), upload(w, dtype), upload(bias, dtype)), y, scale, 8,
                  "linear with bias");
    }
  }
  EXPECT_EQ(linear(upload({{0, 3}, {}}, DType::kF32), upload(random_array({2, 3}, DType::kF32), DType::kF32))
                .shape(),
            (Shape{0, 2}));
}

TEST(Products, F32KeepsFullPrecision) {
  // 1 + 2^-20 is lost where products are made in bf16 or tf32.
  Array a{{1, 2}, {1 + 0x1p-20, -1}}, b{{2, 1}, {1, 1}};
  expect_near(matmul(upload(a, DType::kF32), upload(b, DType::kF32)), {{1, 1}, {0x1p-20}}, 0, 0, "matmul");
}

TEST(Products, Convolution) {
  for (DType dtype : kDtypes) {
    for (auto [kernel, stride, padding, h, w] :
         {std::tuple{3, 1, 1, 7, 5}, {1, 1, 0, 3, 3}, {3, 2, 1, 8, 9}}) {
      Array x = random_array({2, 3, h, w}, dtype, 1, 1),
            k = random_array({4, 3, kernel, kernel}, dtype, 1, 2);
      Array bias = random_array({4}, dtype, 1, 3);
      int oh = (h + 2 * padding - kernel) / stride + 1, ow = (w + 2 * padding - kernel) / stride + 1;
      Array y{{2, 4, oh, ow}, {}};
      for (int n = 0; n < 2; ++n) {
        for (int o = 0; o < 4; ++o) {
          for (int r = 0; r < oh; ++r) {
            for (int c = 0; c < ow; ++c) {
              double sum = bias.values[static_cast<std::size_t>(o)];
              for (int i = 0; i < 3; ++i) {
                for (int dr = 0; dr < kernel; ++dr) {
                  for (int dc = 0; dc < kernel; ++dc) {
                    int rr = r * stride + dr - padding, cc = c * stride + dc - padding;
                    if (rr < 0 || rr >= h || cc < 0 || cc >= w) continue;
                    sum += x.values[static_cast<std::size_t>(((n * 3 + i) * h + rr) * w + cc)] *
                           k.values[static_cast<std::size_t>(((o * 3 + i) * kernel + dr) * kernel + dc)];
                  }
                }
              }
              y.values.push_back(sum);
            }
          }
        }
      }
      expect_near(conv2d(upload(x, dtype), upload(k, dtype), upload(bias, dtype), stride, padding), y, 5, 8,
                  "conv2d");
    }
  }
}

TEST(Gathers, EmbeddingClampsAndTakeRows) {
  Array table = random_array({5, 3}, DType::kF32);
  std::vector<std::int32_t> ids{4, 0, 9, -1};
  Tensor got =
      embedding(upload(table, DType::kF32), testing::context().from_i32(ids, {2, 2}, testing::mesh()));
  Array reference{{2, 2, 3}, {}};
  for (std::size_t row : {4u, 0u, 4u, 0u}) {
    for (std::size_t j = 0; j < 3; ++j) reference.values.push_back(table.values[row * 3 + j]);
  }
  expect_near(got, reference, 0, 0, "embedding");

  Array x = random_array({2, 3, 4}, DType::kBF16);
  std::vector<std::int32_t> rows{2, 0};
  Array taken{{2, 4}, {}};
  for (std::size_t j = 0; j < 4; ++j) taken.values.push_back(x.values[2 * 4 + j]);
  for (std::size_t j = 0; j < 4; ++j) taken.values.push_back(x.values[12 + j]);
  expect_near(take_rows(upload(x, DType::kBF16), testing::context().from_i32(rows, {2}, testing::mesh())),
              taken, 0, 0, "take_rows");
}

TEST(Gathers, Upsample) {
  Array x = random_array({1, 2, 2, 3}, DType::kF32);
  Array y{{1, 2, 4, 6}, {}};
  for (std::size_t c = 0; c < 2; ++c) {
    for (std::size_t r = 0; r < 4; ++r) {
      for (std::size_t k = 0; k < 6; ++k) y.values.push_back(x.values[(c * 2 + r / 2) * 3 + k / 2]);
    }
  }
  expect_near(upsample_nearest2x(upload(x, DType::kF32)), y, 0, 0, "upsample");
}

// Normalises `groups` runs of equal length in place.
Array normalised(const Array& x, std::size_t run, double eps, bool centre) {
  Array y = x;
  for (std::size_t b = 0; b < x.values.size(); b += run) {
    double mean = 0, square = 0;
    for (std::size_t i = 0; i < run; ++i) mean += x.values[b + i] / static_cast<double>(run);
    if (!centre) mean = 0;
    for (std::size_t i = 0; i < run; ++i) {
      square += (x.values[b + i] - mean) * (x.values[b + i] - mean) / static_cast<double>(run);
    }
    for (std::size_t i = 0; i < run; ++i)
      y.values[b + i] = (x.values[b + i] - mean) / std::sqrt(square + eps);
  }
  return y;
}

TEST(Norms, LayerRmsAndGroup) {
  for (DType dtype : kDtypes) {
    for (double offset : {0.0, 100.0}) {
      Array x = map(random_array({3, 2, 12}, dtype),
                    [&](double v) { return testing::round_to(v + offset, dtype); });
      Array w = random_array({12}, dtype, 1, 2), b = random_array({12}, dtype, 1, 3);
      double ulps =
          offset > 0 && dtype == DType::kF32 ? 600 : 16;  // what f32 keeps of deviations from a mean of 100
      expect_near(layer_norm(upload(x, dtype), {}, {}, 1e-6), normalised(x, 12, 1e-6, true), 1, ulps,
                  "layer_norm");
      Array affine_reference = normalised(x, 12, 1e-6, true), rms = normalised(x, 12, 1e-6, false);
      for (std::size_t i = 0; i < x.values.size(); ++i) {
        affine_reference.values[i] = affine_reference.values[i] * w.values[i % 12] + b.values[i % 12];
        rms.values[i] *= w.values[i % 12];
      }
      expect_near(layer_norm(upload(x, dtype), upload(w, dtype), upload(b, dtype), 1e-6), affine_reference, 2,
                  ulps, "layer_norm with weights");
      expect_near(rms_norm(upload(x, dtype), upload(w, dtype), 1e-6), rms, 1, 16, "rms_norm");

      Array image = map(random_array({2, 6, 3, 5}, dtype),
                        [&](double v) { return testing::round_to(v + offset, dtype); });
      Array gw = random_array({6}, dtype, 1, 4), gb = random_array({6}, dtype, 1, 5);
      Array g = normalised(image, 2 * 15, 1e-6, true);
      for (std::size_t i = 0; i < g.values.size(); ++i) {
        std::size_t channel = i / 15 % 6;
        g.values[i] = g.values[i] * gw.values[channel] + gb.values[channel];
      }
      expect_near(group_norm(upload(image, dtype), 3, upload(gw, dtype), upload(gb, dtype), 1e-6), g, 2, ulps,
                  "group_norm");
    }
  }
}

TEST(Norms, SoftmaxAndReductions) {
  for (DType dtype : kDtypes) {
    Array x = random_array({3, 7}, dtype, 30);
    x.values[0] = testing::round_to(3e38, dtype);
    Array y = x;
    Array sum{{7}, std::vector<double>(7)}, mean{{3}, std::vector<double>(3)},
        top{{3}, std::vector<double>(3, -1e300)};
    for (std::size_t r = 0; r < 3; ++r) {
      double high = *std::max_element(x.values.begin() + static_cast<std::ptrdiff_t>(r * 7),
                                      x.values.begin() + static_cast<std::ptrdiff_t>(r * 7 + 7));
      double total = 0;
      for (std::size_t c = 0; c < 7; ++c) total += std::exp(x.values[r * 7 + c] - high);
      for (std::size_t c = 0; c < 7; ++c) y.values[r * 7 + c] = std::exp(x.values[r * 7 + c] - high) / total;
    }
    expect_near(softmax(upload(x, dtype)), y, 1, 8, "softmax");
    Array z = random_array({3, 7}, dtype);
    for (std::size_t i = 0; i < 21; ++i) {
      sum.values[i % 7] += z.values[i];
      mean.values[i / 7] += z.values[i] / 7;
      top.values[i / 7] = std::max(top.values[i / 7], z.values[i]);
    }
    expect_near(ops::sum(upload(z, dtype), {0}), sum, 1, 4, "sum");
    expect_near(ops::mean(upload(z, dtype), {1}), mean, 1, 4, "mean");
    expect_near(ops::max(upload(z, dtype), {1}), top, 0, 0, "max");
  }
}

Array attention_reference(const Array& q, const Array& k, const Array& v, const Array* bias, double scale,
                          bool causal) {
  auto b = static_cast<std::size_t>(q.shape[0]), n = static_cast<std::size_t>(q.shape[1]),
       h = static_cast<std::size_t>(q.shape[2]), d = static_cast<std::size_t>(q.shape[3]),
       m = static_cast<std::size_t>(k.shape[1]);
  Array out{q.shape, std::vector<double>(q.values.size())};
  for (std::size_t bi = 0; bi < b; ++bi) {
    for (std::size_t hi = 0; hi < h; ++hi) {
      for (std::size_t i = 0; i < n; ++i) {
        std::vector<double> s(m, -INFINITY);
        for (std::size_t j = 0; j < m; ++j) {
          if (causal && j > i) continue;
          double dot = 0;
          for (std::size_t c = 0; c < d; ++c) {
            dot += q.values[((bi * n + i) * h + hi) * d + c] * k.values[((bi * m + j) * h + hi) * d + c];
          }
          s[j] = dot * scale + (bias ? bias->values[(hi * n + i) * m + j] : 0);
        }
        double top = *std::ranges::max_element(s), total = 0;
        if (top == -INFINITY) continue;  // nothing to attend to: zeros
        for (double& x : s) total += x = std::exp(x - top);
        for (std::size_t c = 0; c < d; ++c) {
          double sum = 0;
          for (std::size_t j = 0; j < m; ++j) sum += s[j] / total * v.values[((bi * m + j) * h + hi) * d + c];
          out.values[((bi * n + i) * h + hi) * d + c] = sum;
        }
      }
    }
  }
  return out;
}

TEST(Attention, MatchesTheReference) {
  for (DType dtype : kDtypes) {
    for (bool causal : {false, true}) {
      for (auto [n, m] : {std::pair{7, 7}, {1, 5}, {5, 1}}) {
        Array q = random_array({2, n, 3, 8}, dtype, 1, 1), k = random_array({2, m, 3, 8}, dtype, 1, 2),
              v = random_array({2, m, 3, 8}, dtype, 1, 3), bias = random_array({1, 3, n, m}, dtype, 1, 4);
        expect_near(attention(upload(q, dtype), upload(k, dtype), upload(v, dtype), {}, 0.35, causal),
                    attention_reference(q, k, v, nullptr, 0.35, causal), 1, 16, "attention");
        expect_near(attention(upload(q, dtype), upload(k, dtype), upload(v, dtype), upload(bias, dtype), 0.35,
                              causal),
                    attention_reference(q, k, v, &bias, 0.35, causal), 1, 16, "attention with bias");
      }
    }
  }
}

TEST(Attention, ARowWithNothingToAttendToIsZero) {
  Array q = random_array({1, 2, 1, 4}, DType::kF32), bias{{1, 1, 2, 2}, {-INFINITY, -INFINITY, 0, -INFINITY}};
  Array reference = attention_reference(q, q, q, &bias, 0.5, false);
  expect_near(attention(upload(q, DType::kF32), upload(q, DType::kF32), upload(q, DType::kF32),
                        upload(bias, DType::kF32), 0.5, false),
              reference, 1, 8, "masked");
}

TEST(Attention, LargeScoresDoNotOverflow) {
  Array q = random_array({1, 3, 1, 4}, DType::kF32, 1e4);
  expect_near(
      attention(upload(q, DType::kF32), upload(q, DType::kF32), upload(q, DType::kF32), {}, 1.0, false),
      attention_reference(q, q, q, nullptr, 1.0, false), 1e4, 8, "large");
}

TEST(Attention, NoKeysGiveZeros) {
  Tensor none = upload({{1, 0, 2, 4}, {}}, DType::kF32);
  Array q = random_array({1, 3, 2, 4}, DType::kF32);
  expect_near(attention(upload(q, DType::kF32), none, none, {}, 1, false),
              {{1, 3, 2, 4}, std::vector<double>(24)}, 0, 0, "no keys");
}

// More scores than the limit: several blocks of queries, the last of which overlaps.
TEST(Attention, RunsOverBlocksOfQueries) {
  std::int64_t n = 1500, m = 1450, heads = 9;  // 78 MB of scores in f32
  Array q = random_array({1, n, heads, 4}, DType::kF32, 1, 1),
        k = random_array({1, m, heads, 4}, DType::kF32, 1, 2),
        v = random_array({1, m, heads, 4}, DType::kF32, 1, 3);
  testing::context().reset_memory_peaks();
  std::int64_t before = testing::context().memory(*testing::mesh()).in_use();
  for (bool causal : {false, true}) {
    Tensor y =
        attention(upload(q, DType::kF32), upload(k, DType::kF32), upload(v, DType::kF32), {}, 0.5, causal);
    expect_near(y, attention_reference(q, k, v, nullptr, 0.5, causal), 1, 64, "blocks");
  }
  std::int64_t scores = n * m * heads * 4;
  EXPECT_LT(testing::context().memory(*testing::mesh()).peak() - before, 4 * scores);
}

TEST(Diffusion, Rope) {
  for (DType dtype : kDtypes) {
    Array x = random_array({2, 3, 2, 6}, dtype, 1, 1), cos = random_array({3, 6}, DType::kF32, 1, 2),
          sin = random_array({3, 6}, DType::kF32, 1, 3);
    Array y = x;
    for (std::size_t i = 0; i < x.values.size(); i += 2) {
      std::size_t at = i / 12 % 3 * 6 + i % 6;
      y.values[i] = x.values[i] * cos.values[at] - x.values[i + 1] * sin.values[at];
      y.values[i + 1] = x.values[i + 1] * cos.values[at + 1] + x.values[i] * sin.values[at + 1];
    }
    expect_near(rope(upload(x, dtype), upload(cos, DType::kF32), upload(sin, DType::kF32)), y, 1, 4, "rope");
  }
}

// Its numbers are those of the operations that it stands for.
TEST(Diffusion, QkNormRope) {
  for (DType dtype : kDtypes) {
    auto of = [&](const Shape& shape, unsigned seed) {
      return upload(random_array(shape, dtype, 1, seed), dtype);
    };
    Tensor x = of({2, 3, 2, 6}, 1), y = of({2, 4, 2, 6}, 2), a = of({6}, 3), b = of({6}, 4);
    Tensor cos = upload(random_array({7, 6}, DType::kF32, 1, 5), DType::kF32);
    Tensor sin = upload(random_array({7, 6}, DType::kF32, 1, 6), DType::kF32);
    const Tensor streams[] = {x, y}, weights[] = {a, b};
    Tensor joined = concatenate({rms_norm(x, a, 1e-5), rms_norm(y, b, 1e-5)}, 1);
    auto expect_same = [&](const Tensor& got, const Tensor& wanted, const char* what) {
      ASSERT_EQ(got.shape(), wanted.shape()) << what;
      EXPECT_EQ(got.to_f32(), wanted.to_f32()) << what;
    };
    for (bool halves : {false, true}) {
      expect_same(qk_norm_rope(streams, weights, 1e-5, cos, sin, halves), rope(joined, cos, sin, halves),
                  "all");
      expect_same(qk_norm_rope(std::span(&joined, 1), {}, 0, cos, sin, halves),
                  rope(joined, cos, sin, halves), "rotated");
    }
    expect_same(qk_norm_rope(streams, weights, 1e-5), joined, "normed");
    expect_same(qk_norm_rope(streams, {}, 0), concatenate({x, y}, 1), "joined");
  }
}

TEST(Diffusion, ModulateAndGatedAdd) {
  for (DType dtype : kDtypes) {
    Array x = random_array({2, 3, 5}, dtype, 1, 1), a = random_array({2, 5}, dtype, 1, 2),
          b = random_array({2, 5}, dtype, 1, 3);
    Array modulated = x, gated = x;
    for (std::size_t i = 0; i < 30; ++i) {
      std::size_t at = i / 15 * 5 + i % 5;
      modulated.values[i] = x.values[i] * (1 + b.values[at]) + a.values[at];
      gated.values[i] = x.values[i] + a.values[at] * x.values[i];
    }
    expect_near(modulate(upload(x, dtype), upload(a, dtype), upload(b, dtype)), modulated, 1, 4, "modulate");
    expect_near(gated_add(upload(x, dtype), upload(a, dtype), upload(x, dtype)), gated, 1, 4, "gated_add");
  }
}

TEST(Diffusion, TimestepEmbedding) {
  Array t{{2}, {0.5, 999}};
  for (bool flip : {true, false}) {
    Array y{{2, 8}, {}};
    for (double time : t.values) {
      std::vector<double> sin, cos;
      for (int i = 0; i < 4; ++i) {
        double angle = time * std::exp(-std::log(10000.0) * i / 4);
        sin.push_back(std::sin(angle));
        cos.push_back(std::cos(angle));
      }
      for (double v : flip ? cos : sin) y.values.push_back(v);
      for (double v : flip ? sin : cos) y.values.push_back(v);
    }
    expect_near(timestep_embedding(upload(t, DType::kF32), 8, flip, 0), y, 1000, 2, "timestep_embedding");
  }
}

TEST(Diffusion, AllFinite) {
  for (DType dtype : kDtypes) {
    EXPECT_EQ(all_finite(upload({{3}, {1, -2, 0}}, dtype)).to_bytes()[0], std::byte{1});
    for (double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      EXPECT_EQ(all_finite(upload({{3}, {1, bad, 0}}, dtype)).to_bytes()[0], std::byte{0});
    }
    EXPECT_EQ(all_finite(upload({{0}, {}}, dtype)).to_bytes()[0], std::byte{1});
  }
}

TEST(Diffusion, ToImageRoundsHalfToEvenAndClamps) {
  Array x{{1, 3, 1, 2}, {-5, 5, 0, -1, 1, 3.0 / 255 * 2 - 1}};
  std::vector<std::byte> bytes = to_image(upload(x, DType::kF32)).to_bytes();
  std::vector<int> got;
  for (std::byte b : bytes) got.push_back(static_cast<int>(b));
  EXPECT_EQ(got, (std::vector<int>{0, 128, 255, 255, 0, 3}));  // 0 is 127.5, which rounds to 128
}

TEST(Mistakes, NameTheOperationAndTheShapes) {
  Tensor a = upload(random_array({2, 3}, DType::kF32), DType::kF32);
  auto message = [](auto f) {
    try {
      f();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      return std::string(e.what());
    }
    return std::string("no error");
  };
  graph::ScopedLocation where(std::make_shared<const std::string>("blocks.3.to_q"));
  EXPECT_EQ(message([&] { add(a, upload(random_array({4}, DType::kF32), DType::kF32)); }),
            "add(f32[2, 3], f32[4]): shapes [2, 3] and [4] do not broadcast (in blocks.3.to_q)");
  std::string text = message([&] { linear(a, transpose(a, {1, 0})); });
  EXPECT_NE(text.find("linear(f32[2, 3], f32[3, 2])"), std::string::npos) << text;
  EXPECT_NE(message([&] { add(a, cast(a, DType::kBF16)); }).find("cast one"), std::string::npos);
  EXPECT_NE(message([&] { slice(a, 5, 0, 1); }).find("no axis 5"), std::string::npos);
  EXPECT_NE(message([&] { reshape(a, {4, 4}); }).find("[4, 4]"), std::string::npos);
}

TEST(Runtime, CompilesAProgramOnceAndCountsMemory) {
  Context& c = testing::context();
  Array x = random_array({11, 13}, DType::kF32);
  Tensor t = upload(x, DType::kF32);
  (void)add(t, t).to_f32();
  Statistics before = c.statistics();
  std::int64_t in_use = c.memory(*testing::mesh()).in_use();
  {
    Tensor y = t;
    for (int i = 0; i < 2000; ++i) y = add(y, t);  // past the run-ahead limit
    EXPECT_EQ(y.to_f32().size(), x.values.size());
  }
  Statistics after = c.statistics();
  EXPECT_LE(after.compiles - before.compiles, 1);  // add(t, t) reads one argument, add(y, t) two
  EXPECT_EQ(after.operations - before.operations, 2000);
  EXPECT_EQ(c.memory(*testing::mesh()).in_use(), in_use);
}

TEST(Runtime, AMemoryLimitRefusesWithAdvice) {
  Context small({.plugins = {}, .memory_limit = 1000, .client_options = {}});
  std::vector<float> values(200);
  Tensor t = small.from_f32(values, {200}, small.mesh());
  try {
    (void)add(t, t);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kOutOfMemory);
    EXPECT_NE(std::string(e.what()).find("offload"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tessera::ops
