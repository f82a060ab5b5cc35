#include "tessera/graph/shape_rules.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "tests/graph/graph_testing.h"

namespace tessera::graph::testing {
namespace {

using Ints = std::vector<std::int64_t>;

TensorType type(DType dtype, Shape shape) { return {dtype, shape}; }
TensorType f(Shape shape) { return {DType::kF32, shape}; }
TensorType b(Shape shape) { return {DType::kBF16, shape}; }
TensorType i(Shape shape) { return {DType::kI32, shape}; }

struct Good {
  const OpDef* op;
  Attributes attributes;
  std::vector<TensorType> operands;
  TensorType result;
};

const Attributes kConv3x3{{"stride", std::int64_t{2}}, {"padding", std::int64_t{1}}};
const Attributes kTwoGroups{{"groups", std::int64_t{2}}, {"eps", 1e-6}};
const Attributes kPlainAttention{{"scale", 1.0}, {"causal", false}};

Attributes timestep(std::int64_t dim, double shift) {
  return {{"dim", dim}, {"flip_sin_to_cos", true}, {"downscale_freq_shift", shift}, {"max_period", 1e4}};
}

const Good kGood[] = {
    {&kSilu, {}, {b({3, 1})}, b({3, 1})},
    {&kAdd, {}, {f({3, 1}), f({2, 1, 7})}, f({2, 3, 7})},
    {&kAdd, {}, {f({1}), f({0})}, f({0})},
    {&kMaximum, {}, {i({}), i({4})}, i({4})},
    {&kAffine, {{"multiplier", 2.0}, {"offset", 1.0}}, {b({})}, b({})},
    {&kCast, {{"dtype", DType::kF16}}, {i({3})}, type(DType::kF16, {3})},
    {&kReshape, {{"shape", Ints{3, 4}}}, {f({2, 6})}, f({3, 4})},
    {&kReshape, {{"shape", Ints{7, 0}}}, {f({0})}, f({7, 0})},
    {&kBroadcastTo, {{"shape", Ints{2, 3}}}, {f({3})}, f({2, 3})},
    {&kTranspose, {{"permutation", Ints{2, 0, 1}}}, {f({2, 3, 4})}, f({4, 2, 3})},
    {&kSlice, {{"begin", Ints{0, 3}}, {"end", Ints{2, 3}}}, {f({2, 3})}, f({2, 0})},
    {&kConcatenate, {{"axis", std::int64_t{1}}}, {f({2, 3}), f({2, 0}), f({2, 1})}, f({2, 4})},
    {&kPad, {{"low", Ints{1, 0}}, {"high", Ints{0, 2}}}, {f({2, 3})}, f({3, 5})},
    {&kSum, {{"axes", Ints{0, 2}}}, {i({2, 3, 4})}, i({3})},
    {&kMean, {{"axes", Ints{}}}, {b({2})}, b({2})},
    {&kLinear, {}, {b({3}), b({5, 3}), b({5})}, b({5})},
    {&kLinear, {}, {b({2, 0, 3}), b({5, 3})}, b({2, 0, 5})},
    {&kMatmul, {}, {f({4, 2, 3}), f({4, 3, 5})}, f({4, 2, 5})},
    {&kConv2d, kConv3x3, {f({1, 3, 8, 9}), f({4, 3, 3, 3}), f({4})}, f({1, 4, 4, 5})},
    {&kUpsampleNearest2x, {}, {b({1, 2, 3, 4})}, b({1, 2, 6, 8})},
    {&kEmbedding, {}, {b({9, 4}), i({2, 3})}, b({2, 3, 4})},
    {&kTakeRows, {}, {b({2, 9, 4}), i({2})}, b({2, 4})},
    {&kLayerNorm, {{"eps", 1e-5}}, {b({2, 3}), b({3}), b({3})}, b({2, 3})},
    {&kGroupNorm, kTwoGroups, {b({2, 6, 3}), b({6}), b({6})}, b({2, 6, 3})},
    {&kSoftmax, {}, {b({2, 3})}, b({2, 3})},
    {&kAttention,
     kPlainAttention,
     {b({2, 5, 3, 4}), b({2, 7, 3, 4}), b({2, 7, 3, 4}), b({1, 1, 5, 7})},
     b({2, 5, 3, 4})},
    {&kAttention,
     kPlainAttention,
     {b({2, 5, 6, 4}), b({2, 7, 3, 4}), b({2, 7, 3, 4}), b({1, 6, 5, 7})},
     b({2, 5, 6, 4})},
    {&kRope, {}, {b({2, 5, 3, 4}), f({5, 4}), f({5, 4})}, b({2, 5, 3, 4})},
    {&kModulate, {}, {b({2, 5, 3}), b({2, 3}), b({2, 3})}, b({2, 5, 3})},
    {&kGatedAdd, {}, {b({2, 5, 3}), b({2, 3}), b({2, 5, 3})}, b({2, 5, 3})},
    {&kTimestepEmbedding, timestep(8, 0), {f({3})}, f({3, 8})},
    {&kAllFinite, {}, {b({2, 3})}, type(DType::kBool, {})},
    {&kToImage, {}, {b({2, 3, 4, 5})}, type(DType::kU8, {2, 4, 5, 3})},
    {&kAllReduce, {{"ranks", std::int64_t{4}}}, {b({2, 3})}, b({2, 3})},
};

TEST(ShapeRules, GiveTheResultsType) {
  for (const Good& c : kGood) {
    TensorType got = c.op->infer(c.attributes, c.operands);
    EXPECT_EQ(got, c.result) << c.op->name << " gave " << to_string(got);
  }
}

struct Bad {
  const OpDef* op;
  Attributes attributes;
  std::vector<TensorType> operands;
  std::string message;
};

const Bad kBad[] = {
    {&kExp, {}, {i({3})}, "exp(i32[3]): wants a floating-point operand"},
    {&kAdd, {}, {f({2, 3}), f({4})}, "add(f32[2, 3], f32[4]): shapes [2, 3] and [4] do not broadcast"},
    {&kAdd, {}, {f({2}), f({0})}, "add(f32[2], f32[0]): shapes [2] and [0] do not broadcast"},
    {&kAdd, {}, {f({3}), b({3})}, "add(f32[3], bf16[3]): wants operands of one dtype; cast one"},
    {&kReshape,
     {{"shape", Ints{4, 4}}},
     {f({2, 6})},
     "reshape(f32[2, 6]): has another number of elements than [4, 4]"},
    {&kBroadcastTo, {{"shape", Ints{3}}}, {f({2, 3})}, "broadcast_to(f32[2, 3]): does not broadcast to [3]"},
    {&kBroadcastTo, {{"shape", Ints{1}}}, {f({3})}, "broadcast_to(f32[3]): does not broadcast to [1]"},
    {&kTranspose,
     {{"permutation", Ints{0, 0}}},
     {f({2, 3})},
     "transpose(f32[2, 3]): [0, 0] is no permutation of its axes"},
    {&kTranspose,
     {{"permutation", Ints{0}}},
     {f({2, 3})},
     "transpose(f32[2, 3]): [0] is no permutation of its axes"},
    {&kSlice, {{"begin", Ints{0}}, {"end", Ints{4}}}, {f({3})}, "slice(f32[3]): no range [0] to [4] in it"},
    {&kSlice, {{"begin", Ints{2}}, {"end", Ints{1}}}, {f({3})}, "slice(f32[3]): no range [2] to [1] in it"},
    {&kSlice, {{"begin", Ints{-1}}, {"end", Ints{1}}}, {f({3})}, "slice(f32[3]): no range [-1] to [1] in it"},
    {&kConcatenate,
     {{"axis", std::int64_t{0}}},
     {f({2, 3}), f({2, 4})},
     "concatenate(f32[2, 3], f32[2, 4]): the axes other than 0 differ"},
    {&kConcatenate, {{"axis", std::int64_t{2}}}, {f({2, 3})}, "concatenate(f32[2, 3]): has no axis 2"},
    {&kPad, {{"low", Ints{-1}}, {"high", Ints{0}}}, {f({3})}, "pad(f32[3]): paddings are not negative"},
    {&kSum, {{"axes", Ints{1}}}, {f({3})}, "sum(f32[3]): has no axis 1"},
    {&kSum, {{"axes", Ints{0, 0}}}, {f({3})}, "sum(f32[3]): axis 0 is given twice"},
    {&kMax, {{"axes", Ints{0}}}, {type(DType::kBool, {3})}, "max(bool[3]): wants numbers"},
    {&kMean, {{"axes", Ints{0}}}, {i({3})}, "mean(i32[3]): wants a floating-point operand"},
    {&kLinear,
     {},
     {f({2, 3}), f({3, 5})},
     "linear(f32[2, 3], f32[3, 5]): wants x [..., in] and weight [out, in]"},
    {&kLinear,
     {},
     {f({2, 3}), f({5, 3}), f({3})},
     "linear(f32[2, 3], f32[5, 3], f32[3]): wants a bias [out]"},
    {&kLinear,
     {},
     {b({2, 3}), f({5, 3})},
     "linear(bf16[2, 3], f32[5, 3]): wants floating-point operands of one dtype"},
    {&kMatmul,
     {},
     {f({2, 3}), f({2, 3})},
     "matmul(f32[2, 3], f32[2, 3]): wants [..., M, K] and [..., K, N] with equal leading axes"},
    {&kMatmul,
     {},
     {f({2, 2, 3}), f({1, 3, 2})},
     "matmul(f32[2, 2, 3], f32[1, 3, 2]): wants [..., M, K] and [..., K, N] with equal leading axes"},
    {&kConv2d,
     kConv3x3,
     {f({1, 3, 8, 8}), f({4, 2, 3, 3})},
     "conv2d(f32[1, 3, 8, 8], f32[4, 2, 3, 3]): wants x [N, C, H, W] and weight [O, C, kh, kw]"},
    {&kConv2d,
     kConv3x3,
     {f({1, 3, 0, 8}), f({4, 3, 3, 3})},
     "conv2d(f32[1, 3, 0, 8], f32[4, 3, 3, 3]): the kernel is larger than the padded input"},
    {&kConv2d,
     kConv3x3,
     {f({1, 3, 8, 8}), f({4, 3, 0, 3})},
     "conv2d(f32[1, 3, 8, 8], f32[4, 3, 0, 3]): wants a kernel that is not empty"},
    {&kEmbedding, {}, {f({9, 4}), f({2})}, "embedding(f32[9, 4], f32[2]): wants table [V, D] and i32 ids"},
    {&kEmbedding, {}, {f({0, 4}), i({2})}, "embedding(f32[0, 4], i32[2]): the table has no rows"},
    {&kTakeRows,
     {},
     {f({2, 9, 4}), i({3})},
     "take_rows(f32[2, 9, 4], i32[3]): wants x [B, S, D] and i32 positions [B]"},
    {&kTakeRows, {}, {f({2, 0, 4}), i({2})}, "take_rows(f32[2, 0, 4], i32[2]): there are no rows to take"},
    {&kLayerNorm,
     {{"eps", 1e-5}},
     {f({2, 3}), f({2}), f({2})},
     "layer_norm(f32[2, 3], f32[2], f32[2]): wants weights as long as the last axis"},
    {&kSoftmax, {}, {f({})}, "softmax(f32[]): wants an axis to normalise"},
    {&kGroupNorm,
     kTwoGroups,
     {f({1, 5, 2}), f({5}), f({5})},
     "group_norm(f32[1, 5, 2], f32[5], f32[5]): wants [N, C, ...] with C a multiple of 2 groups"},
    {&kAttention,
     kPlainAttention,
     {f({1, 5, 2, 4}), f({1, 7, 3, 4}), f({1, 7, 3, 4})},
     "attention(f32[1, 5, 2, 4], f32[1, 7, 3, 4], f32[1, 7, 3, 4]): wants q [B, Q, H, D] and k, v [B, K, G, "
     "D], where G divides H"},
    {&kAttention,
     kPlainAttention,
     {f({1, 5, 2, 4}), f({1, 7, 4, 4}), f({1, 7, 4, 4})},
     "attention(f32[1, 5, 2, 4], f32[1, 7, 4, 4], f32[1, 7, 4, 4]): wants q [B, Q, H, D] and k, v [B, K, G, "
     "D], where G divides H"},
    {&kAttention,
     kPlainAttention,
     {f({1, 5, 2, 4}), f({1, 7, 0, 4}), f({1, 7, 0, 4})},
     "attention(f32[1, 5, 2, 4], f32[1, 7, 0, 4], f32[1, 7, 0, 4]): wants q [B, Q, H, D] and k, v [B, K, G, "
     "D], where G divides H"},
    {&kAttention,
     kPlainAttention,
     {f({1, 5, 2, 4}), f({1, 7, 2, 4}), f({1, 7, 2, 4}), f({1, 1, 7, 5})},
     "attention(f32[1, 5, 2, 4], f32[1, 7, 2, 4], f32[1, 7, 2, 4], f32[1, 1, 7, 5]): shapes [1, 1, 7, 5] and "
     "[1, 2, 5, 7] do not broadcast"},
    {&kAttention,
     kPlainAttention,
     {f({1, 5, 2, 4}), f({1, 7, 2, 4}), f({1, 7, 2, 4}), f({5, 7})},
     "attention(f32[1, 5, 2, 4], f32[1, 7, 2, 4], f32[1, 7, 2, 4], f32[5, 7]): wants a bias that broadcasts "
     "to [B, H, Q, K]"},
    {&kRope,
     {},
     {f({1, 5, 2, 3}), f({5, 3}), f({5, 3})},
     "rope(f32[1, 5, 2, 3], f32[5, 3], f32[5, 3]): wants x [B, S, H, D] with even D and f32 cos, sin [S, D]"},
    {&kQkNormRope,
     {{"streams", std::int64_t{2}}, {"norm", false}, {"rope", true}, {"halves", false}, {"eps", 1e-6}},
     {f({1, 5, 2, 4}), f({1, 3, 2, 4}), f({5, 4}), f({5, 4})},
     "qk_norm_rope(f32[1, 5, 2, 4], f32[1, 3, 2, 4], f32[5, 4], f32[5, 4]): wants streams [B, S, H, D], a "
     "weight "
     "[D] for each to norm them, and f32 cos, sin [S, D] with even D to rotate them"},
    {&kQkNormRope,
     {{"streams", std::int64_t{2}}, {"norm", true}, {"rope", false}, {"halves", false}, {"eps", 1e-6}},
     {f({1, 5, 2, 4}), f({1, 3, 2, 4}), f({4})},
     "qk_norm_rope(f32[1, 5, 2, 4], f32[1, 3, 2, 4], f32[4]): wants streams [B, S, H, D], a weight [D] for "
     "each to "
     "norm them, and f32 cos, sin [S, D] with even D to rotate them"},
    {&kModulate,
     {},
     {f({2, 5, 3}), f({1, 3}), f({1, 3})},
     "modulate(f32[2, 5, 3], f32[1, 3], f32[1, 3]): wants x [B, S, D] and shift, scale [B, D]"},
    {&kGatedAdd,
     {},
     {f({2, 5, 3}), f({2, 3}), f({2, 4, 3})},
     "gated_add(f32[2, 5, 3], f32[2, 3], f32[2, 4, 3]): wants residual [B, S, D], gate [B, D], x [B, S, D]"},
    {&kTimestepEmbedding,
     timestep(7, 0),
     {f({2})},
     "timestep_embedding(f32[2]): wants f32 timesteps [B] and an even width"},
    {&kTimestepEmbedding,
     timestep(2, 1),
     {f({2})},
     "timestep_embedding(f32[2]): wants downscale_freq_shift to be less than half the width"},
    {&kAllFinite, {}, {i({2})}, "all_finite(i32[2]): wants a floating-point operand"},
    {&kAllReduce,
     {{"ranks", std::int64_t{2}}},
     {i({2})},
     "all_reduce(i32[2]): wants a floating-point operand"},
    {&kToImage, {}, {f({3, 4, 5})}, "to_image(f32[3, 4, 5]): wants floats [N, C, H, W]"},
};

TEST(ShapeRules, RefuseWithAMessageThatNamesTheTypes) {
  for (const Bad& c : kBad) {
    auto [code, message] = error_of([&] { c.op->infer(c.attributes, c.operands); });
    EXPECT_EQ(code, ErrorCode::kInvalidArgument) << c.op->name;
    EXPECT_EQ(message, c.message);
  }
}

// Rules are shared by operations that are alike; the error names the one that was called.
TEST(ShapeRules, ErrorsNameTheOperationItself) {
  for (const OpDef* op :
       {&kNegate, &kGeluTanh, &kRelu, &kAdd, &kMinimum, &kSum, &kMax, &kRmsNorm, &kSoftmax}) {
    std::vector<TensorType> operands{type(DType::kBool, {2}), f({3})};
    auto [code, message] = error_of([&] { op->infer({{"axes", Ints{0}}}, operands); });
    EXPECT_TRUE(message.starts_with(std::string(op->name) + "(bool[2], f32[3]): ")) << message;
  }
}

TEST(ShapeRules, AnErrorNamesThePartOfTheModel) {
  ScopedLocation where(std::make_shared<const std::string>("transformer_blocks.3.attn.to_q"));
  auto [code, message] = error_of([] { node(kLinear, {}, {f32({2, 3}), f32({3, 5})}); });
  EXPECT_EQ(message,
            "linear(f32[2, 3], f32[3, 5]): wants x [..., in] and weight [out, in] (in "
            "transformer_blocks.3.attn.to_q)");
}

TEST(ShapeRules, OperandsOnTwoMeshesAreRefused) {
  auto [code, message] = error_of([] {
    node(kAdd, {}, {f32({2}), leaf(DType::kF32, {2}, make_mesh("tpu"))});
  });
  EXPECT_EQ(code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(message, "add: operands on different meshes (cpu and tpu); move one with to()");
}

TEST(ShapeRules, TheListHasEveryOperationOfTheHeader) {
  std::ifstream in(std::filesystem::path(TESSERA_TEST_DATA) / "../../tessera/graph/shape_rules.h");
  std::string header{std::istreambuf_iterator<char>(in), {}};
  ASSERT_FALSE(header.empty());
  header = std::regex_replace(header, std::regex("//[^\n]*"), "");
  std::regex name("\\bk[A-Z]\\w*");
  auto named = std::distance(std::sregex_iterator(header.begin(), header.end(), name), {});
  std::set<std::string_view> listed;
  for (const OpDef* op : all_operations()) listed.insert(op->name);
  EXPECT_EQ(listed.size(), all_operations().size()) << "two operations have one name";
  EXPECT_EQ(listed.size(), static_cast<std::size_t>(named));
}

}  // namespace
}  // namespace tessera::graph::testing
