#include <gtest/gtest.h>

#include <set>

#include "tests/graph/graph_testing.h"

namespace tessera::graph::testing {
namespace {

Fingerprint of_linear(Shape x, Shape w, DType dtype = DType::kF32) {
  return fingerprint({node(kLinear, {}, {leaf(dtype, x), leaf(dtype, w)})});
}

TEST(Fingerprint, TheSameStructureIsTheSame) {
  EXPECT_EQ(of_linear({2, 3}, {4, 3}), of_linear({2, 3}, {4, 3}));
}

TEST(Fingerprint, OperandValuesStateAndAddressesDoNotMatter) {
  NodePtr a = f32({2, 3}), b = f32({2, 3});
  // The second graph's operand was computed by an operation before it became a value.
  NodePtr computed = node(kNegate, {}, {f32({2, 3})});
  computed->materialise({});
  EXPECT_EQ(fingerprint({node(kAdd, {}, {a, b})}), fingerprint({node(kAdd, {}, {computed, a})}));
}

TEST(Fingerprint, TheLocationDoesNotMatter) {
  NodePtr plain = node(kSilu, {}, {f32({3})}), located;
  {
    ScopedLocation where(std::make_shared<const std::string>("blocks.7.act"));
    located = node(kSilu, {}, {f32({3})});
  }
  EXPECT_EQ(located->where(), "blocks.7.act");
  EXPECT_EQ(plain->where(), "");
  EXPECT_EQ(fingerprint({plain}), fingerprint({located}));
}

// Each entry differs from the others in one thing.
TEST(Fingerprint, EverythingElseMatters) {
  NodePtr a = f32({2, 2}), b = f32({2, 2}), c = f32({2, 2});
  auto add = [](NodePtr x, NodePtr y) { return node(kAdd, {}, {std::move(x), std::move(y)}); };
  auto affine = [&](double m, double o) { return node(kAffine, {{"multiplier", m}, {"offset", o}}, {a}); };
  NodePtr shared = node(kExp, {}, {a});
  std::vector<std::vector<NodePtr>> graphs{
      {add(a, b)},                                      // two operands
      {add(a, a)},                                      // one operand, twice
      {node(kSubtract, {}, {a, b})},                    // another operation
      {node(kAdd, {}, {bf16({2, 2}), bf16({2, 2})})},   // another dtype
      {add(f32({2, 3}), f32({2, 3}))},                  // another shape
      {add(f32({4}), f32({4}))},                        // another rank
      {add(a, f32({1, 2}))},                            // a broadcast operand
      {add(f32({1, 2}), a)},                            // ... the other one
      {add(add(a, b), c)},                              // wiring
      {add(a, add(b, c))},                              //
      {add(add(a, b), a)},                              //
      {add(add(a, b), b)},                              //
      {add(a, node(kExp, {}, {a}))},                    // order of operands
      {add(node(kExp, {}, {a}), a)},                    //
      {add(shared, shared)},                            // an operation used twice
      {add(node(kExp, {}, {a}), node(kExp, {}, {a}))},  // ... and done twice
      {affine(2, 1)},                                   // attributes
      {affine(1, 2)},                                   //
      {affine(2, 1.0000000000000002)},                  //
      {affine(2, -1)},                                  //
      {node(kTranspose, {{"permutation", std::vector<std::int64_t>{1, 0}}}, {a})},
      {node(kTranspose, {{"permutation", std::vector<std::int64_t>{0, 1}}}, {a})},
      {node(kCast, {{"dtype", DType::kBF16}}, {a})},
      {node(kCast, {{"dtype", DType::kF16}}, {a})},
      {shared, add(a, b)},  // outputs
      {add(a, b), shared},  // ... and their order
  };
  for (const MeshPtr& other : {make_mesh("tpu"), make_mesh("cpu", 2)}) {
    NodePtr x = leaf(DType::kF32, {2, 2}, other), y = leaf(DType::kF32, {2, 2}, other);
    graphs.push_back({add(x, y)});
  }
  std::set<Fingerprint> seen;
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    EXPECT_TRUE(seen.insert(fingerprint(graphs[i])).second) << "graph " << i << " has another's fingerprint";
  }
}

TEST(Cut, TakesWhatIsPendingInOrderAndEachArgumentOnce) {
  NodePtr a = f32({3}), b = f32({3});
  NodePtr product = node(kMultiply, {}, {a, b});
  NodePtr sum = node(kAdd, {}, {product, a});
  NodePtr unused = node(kExp, {}, {product});
  Program program = cut(std::vector{sum});
  EXPECT_EQ(program.arguments, (std::vector{a, b}));
  EXPECT_EQ(program.steps, (std::vector{product, sum}));
  EXPECT_EQ(program.mesh, mesh());
}

TEST(Cut, AMaterialisedOperandIsAnArgument) {
  NodePtr a = f32({3});
  NodePtr e = node(kExp, {}, {a});
  NodePtr s = node(kAdd, {}, {e, a});
  e->materialise({});
  EXPECT_EQ(cut(std::vector{s}).arguments, (std::vector{e, a}));
}

TEST(Cut, AFailedOperandThrowsItsError) {
  NodePtr e = node(kExp, {}, {f32({3})});
  NodePtr s = node(kNegate, {}, {e});
  e->set_error(std::make_exception_ptr(Error(ErrorCode::kOutOfMemory, "device full")));
  auto [code, message] = error_of([&] { cut(std::vector{s}); });
  EXPECT_EQ(code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(message, "device full");
}

// Neither cutting nor freeing it recurses.
TEST(Cut, ADeepGraphNeedsNoStack) {
  NodePtr x = f32({1});
  for (int i = 0; i < 100000; ++i) {
    NodePtr next = node(kNegate, {}, {x});
    x = std::move(next);
  }
  Program program = cut(std::vector{x});
  EXPECT_EQ(program.steps.size(), 100000u);
}

}  // namespace
}  // namespace tessera::graph::testing
