#include "tessera/kernels/common/attention.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <regex>

#include "tessera/kernels/registry.h"
#include "tests/kernels/attention_reference.h"
#include "tests/kernels/harness.h"

namespace tessera::kernels::testing {
namespace {

constexpr std::array kFloats{DType::kF32, DType::kBF16};

// The project's lowerings, with another limit on the memory of attention's scores.
template <std::int64_t limit>
const graph::LoweringTable& limited() {
  static const graph::LoweringTable table = [] {
    graph::LoweringTable t = lowerings();
    t.add(graph::kAttention.name,
          [](graph::Writer& w, const graph::OpCall& call, std::span<const graph::Value> x) {
            return lower_attention(w, call, x, limit);
          });
    return t;
  }();
  return table;
}

struct Case {
  std::int64_t batch, queries, keys, heads, d;
  std::int64_t groups = heads;  // heads of keys and values
};

void check(const Case& c, const std::optional<Shape>& bias_shape, bool causal,
           const graph::LoweringTable& table, const std::string& what) {
  for (DType dtype : kFloats) {
    Array q = random(dtype, {c.batch, c.queries, c.heads, c.d}, 1, 2),
          k = random(dtype, {c.batch, c.keys, c.groups, c.d}, 2),
          v = random(dtype, {c.batch, c.keys, c.groups, c.d}, 3);
    std::vector<Array> operands{q, k, v};
    if (bias_shape) operands.push_back(random(dtype, *bias_shape, 4));
    double scale = 1 / std::sqrt(static_cast<double>(c.d));
    // The weights are rounded to the operands' dtype for the second product.
    expect_close(run(graph::kAttention, {{"scale", scale}, {"causal", causal}}, operands, &table),
                 attention_reference(q, k, v, bias_shape ? &operands[3] : nullptr, scale, causal), {24, 1},
                 fmt::format("attention {}{}{} keys {}", what, causal ? " causal" : "",
                             bias_shape ? " bias " + to_string(*bias_shape) : "", c.keys));
  }
}

TEST(Attention, OneBlock) {
  check({1, 1, 1, 1, 1}, {}, false, lowerings(), "");
  check({1, 17, 3, 1, 5}, {}, true, lowerings(), "");
  for (bool causal : {false, true}) {
    check({2, 7, 17, 3, 8}, {}, causal, lowerings(), "");
    check({2, 3, 7, 2, 64}, Shape{2, 2, 3, 7}, causal, lowerings(), "");
  }
}

// 2 heads and 5 keys: a row of scores of both takes 40 bytes.
TEST(Attention, SeveralBlocks) {
  for (const auto& bias : std::initializer_list<std::optional<Shape>>{
           {}, Shape{1, 1, 1, 5}, Shape{1, 2, 7, 5}, Shape{1, 1, 7, 1}}) {
    check({1, 7, 5, 2, 4}, bias, false, limited<3 * 40>(), "3 + 3 + 1 rows");
  }
  // With more keys than queries, the rows of the last block that are computed again each hide other keys.
  check({1, 7, 9, 2, 4}, {}, true, limited<3 * 72>(), "3 + 3 + 1 rows");
  check({1, 7, 5, 2, 4}, Shape{1, 2, 7, 5}, true, limited<40>(), "a row a block");
  check({2, 6, 5, 2, 4}, Shape{2, 1, 6, 5}, true, limited<3 * 80>(), "two equal blocks");
  check({1, 17, 5, 2, 4}, {}, false, limited<1>(), "a limit below one row");
}

// Fewer heads of keys and values than of queries.
TEST(Attention, GroupedHeads) {
  for (bool causal : {false, true}) {
    check({2, 7, 9, 6, 8, 2}, {}, causal, lowerings(), "6 heads over 2");
    check({2, 5, 7, 4, 4, 1}, Shape{2, 4, 5, 7}, causal, lowerings(), "4 heads over 1");
    // A row of scores of 6 heads takes 216 bytes, of 2 heads 72.
    check({1, 7, 9, 6, 8, 2}, Shape{1, 6, 7, 9}, causal, limited<3 * 216>(), "3 + 3 + 1 rows");
  }
  EXPECT_EQ(query_block({1, 7, 6, 8}, {1, 9, 2, 8}, 3 * 216), 3);
}

// Blocks are of whole rows, as many as fit; at least one.
TEST(Attention, BlocksFitTheLimit) {
  Shape flux{1, 4608, 24, 128};
  std::int64_t rows = query_block(flux, flux, kMaxScoreBytes), row_bytes = 24 * 4608 * 4;
  EXPECT_LE(rows * row_bytes, kMaxScoreBytes);
  EXPECT_GT((rows + 1) * row_bytes, kMaxScoreBytes);
  EXPECT_EQ(query_block({1, 7, 1, 8}, {1, 7, 1, 8}, kMaxScoreBytes), 7);
  EXPECT_EQ(query_block(flux, flux, 1), 1);
}

// No array of the program is larger than the limit or than an operand.
TEST(Attention, NoArrayOfAllScores) {
  graph::TensorType q{DType::kBF16, {1, 4608, 24, 128}}, bias{DType::kBF16, {1, 1, 1, 4608}};
  std::string text = text_of(graph::kAttention, {{"scale", 0.1}, {"causal", false}}, {q, q, q, bias});
  std::regex type("tensor<((?:\\d+x)*)(f32|bf16|i32|i1)>");
  int seen = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), type), end; it != end; ++it, ++seen) {
    std::int64_t bytes = (*it)[2] == "f32" || (*it)[2] == "i32" ? 4 : (*it)[2] == "bf16" ? 2 : 1;
    std::string dims = (*it)[1];
    for (std::size_t at = 0; at < dims.size(); at = dims.find('x', at) + 1)
      bytes *= std::stoll(dims.substr(at));
    EXPECT_LE(bytes, kMaxScoreBytes) << it->str();
  }
  EXPECT_GT(seen, 40);
}

TEST(Attention, RowsWithNothingToAttendToAreZero) {
  for (DType dtype : kFloats) {
    Array q = random(dtype, {1, 3, 2, 4}, 1), k = random(dtype, {1, 2, 2, 4}, 2),
          v = random(dtype, {1, 2, 2, 4}, 3);
    Array bias = array(dtype, {1, 1, 3, 2}, {0, -INFINITY, -INFINITY, -INFINITY, 1, 2});
    for (const graph::LoweringTable* table : {&lowerings(), &limited<16>()}) {
      Array y = run(graph::kAttention, {{"scale", 0.5}, {"causal", false}}, {q, k, v, bias}, table);
      expect_close(y, attention_reference(q, k, v, &bias, 0.5, false), {24, 1}, "masked row");
      for (std::int64_t i = 8; i < 16; ++i) EXPECT_EQ(y[i], 0) << i;
    }
  }
}

TEST(Attention, ZeroExtents) {
  for (const Case& c :
       {Case{0, 3, 5, 2, 4}, {1, 0, 5, 2, 4}, {1, 3, 0, 2, 4}, {1, 3, 5, 0, 4}, {1, 3, 5, 2, 0}}) {
    check(c, {}, false, lowerings(), "of nothing");
    check(c, {}, true, limited<1>(), "of nothing");
  }
}

TEST(Attention, LargeScores) {
  for (DType dtype : kFloats) {
    Array q = random(dtype, {1, 3, 1, 4}, 1, 1e4), k = random(dtype, {1, 5, 1, 4}, 2, 1e4),
          v = random(dtype, {1, 5, 1, 4}, 3, 1e4);
    // Scores of 1e8 with one far ahead of the others: its value comes out.
    expect_close(run(graph::kAttention, {{"scale", 1.0}, {"causal", false}}, {q, k, v}),
                 attention_reference(q, k, v, nullptr, 1, false), {24, 1}, "large scores");
    // Masks are often the lowest finite number instead of minus infinity.
    Array lowest = array(dtype, {1, 1, 1, 5}, {0, -3.38e38, -3.38e38, 0, -3.38e38}),
          small = random(dtype, {1, 3, 1, 4}, 1);
    expect_close(run(graph::kAttention, {{"scale", 1.0}, {"causal", false}}, {small, k, v, lowest}),
                 attention_reference(small, k, v, &lowest, 1, false), {4096, 1}, "mask of finite numbers");
  }
}

TEST(Attention, Rope) {
  for (DType dtype : kFloats) {
    for (Shape shape : {Shape{1, 1, 1, 2}, Shape{2, 3, 2, 6}, Shape{1, 17, 3, 8}, Shape{1, 0, 2, 4}}) {
      for (bool halves : {false, true}) {
        Array x = random(dtype, shape, 1), cos = random(DType::kF32, {shape[1], shape[3]}, 2),
              sin = random(DType::kF32, {shape[1], shape[3]}, 3);
        Expected e;
        for (std::int64_t i = 0; i < x.size(); ++i) {
          std::int64_t d = shape[3], at = i / (d * shape[2]) % shape[1] * d + i % d;
          std::int64_t apart = halves ? d / 2 : 1;
          bool first = i % d / apart % 2 == 0;
          double a = x[i] * cos[at], b = (first ? -x[i + apart] : x[i - apart]) * sin[at];
          e.values.push_back(a + b);
          e.terms.push_back(std::abs(a) + std::abs(b));
        }
        expect_close(run(graph::kRope, {{"halves", halves}}, {x, cos, sin}), e, {2, 0}, "rope");
      }
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::testing
