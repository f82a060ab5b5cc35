#include "tessera/graph/program.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/graph/shape_rules.h"
#include "tessera/kernels/common/attention.h"
#include "tessera/kernels/registry.h"

// A graph in, the program out.
namespace tessera::graph {
namespace {

class NoEvaluator : public Evaluator {
 public:
  void recorded(const NodePtr&) override {}
  void evaluate(std::span<const NodePtr>) override {}
  std::vector<std::byte> read(const NodePtr&) override { return {}; }
};

struct Programs : ::testing::Test {
  NodePtr leaf(const Shape& shape, DType dtype = DType::kF32) {
    return std::make_shared<Node>(TensorType{dtype, shape}, mesh, std::vector<pjrt::BufferPtr>{});
  }
  NodePtr make(const OpDef& op, Attributes attributes, std::vector<NodePtr> operands) {
    return std::make_shared<Node>(op, std::move(attributes), std::move(operands));
  }
  Fingerprint fingerprint(const NodePtr& node) { return cut(std::span(&node, 1)).fingerprint; }
  std::string text(const NodePtr& node) { return write_text(cut(std::span(&node, 1)), kernels::lowerings()); }

  NoEvaluator evaluator;
  MeshPtr mesh = [this] {
    auto m = std::make_shared<Mesh>();
    m->device = m->platform = "cpu";
    m->devices = {0};
    m->evaluator = &evaluator;
    return m;
  }();
};

TEST_F(Programs, LinearWithBias) {
  NodePtr x = leaf({2, 3}), w = leaf({4, 3}), b = leaf({4});
  EXPECT_EQ(text(make(kLinear, {}, {x, w, b})),
            R"(module {
  func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<4x3xf32>, %arg2: tensor<4xf32>) -> (tensor<2x4xf32>) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST] : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
    %1 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
    %2 = stablehlo.add %0, %1 : tensor<2x4xf32>
    return %2 : tensor<2x4xf32>
  }
}
)");
}

TEST_F(Programs, ASharedOperandIsOneArgument) {
  NodePtr x = leaf({3}, DType::kBF16);
  NodePtr y = make(kAdd, {}, {x, x});
  NodePtr z = make(kMultiply, {}, {y, x});
  EXPECT_EQ(text(z), R"(module {
  func.func public @main(%arg0: tensor<3xbf16>) -> (tensor<3xbf16>) {
    %0 = stablehlo.add %arg0, %arg0 : tensor<3xbf16>
    %1 = stablehlo.multiply %0, %arg0 : tensor<3xbf16>
    return %1 : tensor<3xbf16>
  }
}
)");
}

TEST_F(Programs, FingerprintsTellApartWhatDiffersAndNothingElse) {
  auto add = [&](const Shape& shape, DType dtype) {
    return make(kAdd, {}, {leaf(shape, dtype), leaf(shape, dtype)});
  };
  Fingerprint base = fingerprint(add({2, 3}, DType::kF32));
  EXPECT_EQ(base, fingerprint(add({2, 3}, DType::kF32)));
  EXPECT_NE(base, fingerprint(add({3, 2}, DType::kF32)));
  EXPECT_NE(base, fingerprint(add({2, 3}, DType::kBF16)));
  NodePtr x = leaf({2, 3}), y = leaf({2, 3});
  EXPECT_NE(base, fingerprint(make(kAdd, {}, {x, x})));
  EXPECT_NE(base, fingerprint(make(kSubtract, {}, {x, y})));
  EXPECT_NE(fingerprint(make(kAffine, {{"multiplier", 2.0}, {"offset", 0.0}}, {x})),
            fingerprint(make(kAffine, {{"multiplier", 2.0}, {"offset", 1.0}}, {x})));
  NodePtr sum = make(kAdd, {}, {x, y});
  EXPECT_NE(fingerprint(make(kSubtract, {}, {sum, y})), fingerprint(make(kSubtract, {}, {y, sum})));
  {
    ScopedLocation here(std::make_shared<const std::string>("somewhere"));
    EXPECT_EQ(base, fingerprint(add({2, 3}, DType::kF32)));
  }
}

TEST_F(Programs, ADeepGraphIsCutWithoutRecursion) {
  NodePtr x = leaf({1});
  NodePtr y = x;
  for (int i = 0; i < 20000; ++i) y = make(kAdd, {}, {y, x});
  EXPECT_EQ(cut(std::span(&y, 1)).steps.size(), 20000u);
  // Taken apart one by one: the default destructor would recurse.
  while (y->op() != nullptr) {
    NodePtr next = y->operands()[0];
    y->materialise({});
    y = next;
  }
}

TEST_F(Programs, AFailedOperandFailsTheCut) {
  NodePtr x = make(kAdd, {}, {leaf({1}), leaf({1})});
  x->set_error(std::make_exception_ptr(Error(ErrorCode::kDataLoss, "broken")));
  NodePtr y = make(kNegate, {}, {x});
  EXPECT_THROW(cut(std::span(&y, 1)), Error);
}

TEST_F(Programs, AttentionBlocksKeepScoresBelowTheLimit) {
  Shape q{1, 4608, 24, 128};
  std::int64_t block = kernels::query_block(q, q, kernels::kMaxScoreBytes);
  EXPECT_LE(24 * 4608 * 4 * block, kernels::kMaxScoreBytes);
  EXPECT_GT(24 * 4608 * 4 * (block + 1), kernels::kMaxScoreBytes);
  EXPECT_EQ(kernels::query_block({1, 7, 1, 8}, {1, 7, 1, 8}, kernels::kMaxScoreBytes), 7);
  EXPECT_EQ(kernels::query_block(q, q, 1), 1);
  NodePtr x = leaf(q, DType::kBF16);
  std::string program = text(make(kAttention, {{"scale", 0.1}, {"causal", false}}, {x, x, x}));
  EXPECT_NE(program.find("stablehlo.while"), std::string::npos);
  EXPECT_EQ(program.find("x4608x4608x"), std::string::npos);  // no array of all scores
}

TEST_F(Programs, EveryOperationHasALowering) {
  for (const OpDef* op : {&kNegate,
                          &kExp,
                          &kTanh,
                          &kSin,
                          &kCos,
                          &kSqrt,
                          &kRsqrt,
                          &kSigmoid,
                          &kSilu,
                          &kGelu,
                          &kGeluTanh,
                          &kQuickGelu,
                          &kRelu,
                          &kAdd,
                          &kSubtract,
                          &kMultiply,
                          &kDivide,
                          &kMaximum,
                          &kMinimum,
                          &kAffine,
                          &kCast,
                          &kReshape,
                          &kBroadcastTo,
                          &kTranspose,
                          &kSlice,
                          &kConcatenate,
                          &kPad,
                          &kSum,
                          &kMean,
                          &kMax,
                          &kLinear,
                          &kMatmul,
                          &kConv2d,
                          &kUpsampleNearest2x,
                          &kEmbedding,
                          &kTakeRows,
                          &kLayerNorm,
                          &kRmsNorm,
                          &kGroupNorm,
                          &kSoftmax,
                          &kAttention,
                          &kRope,
                          &kModulate,
                          &kGatedAdd,
                          &kTimestepEmbedding,
                          &kAllFinite,
                          &kToImage}) {
    EXPECT_NE(kernels::lowerings().find(op->name, "cpu"), nullptr) << op->name;
  }
  EXPECT_THROW(kernels::lowerings().find("no_such", "cpu"), Error);
}

}  // namespace
}  // namespace tessera::graph
