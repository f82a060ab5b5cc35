#include "tessera/graph/writer.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "tests/graph/graph_testing.h"

// A graph in, the program out.
namespace tessera::graph::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Lowerings that only this test knows.
LoweringTable table() {
  LoweringTable t;
  t.add(kAdd.name,
        [](Writer& w, const OpCall&, std::span<const Value> x) { return w.binary("add", x[0], x[1]); });
  t.add(kExp.name,
        [](Writer& w, const OpCall&, std::span<const Value> x) { return w.unary("exponential", x[0]); });
  t.add(
      kExp.name, [](Writer& w, const OpCall&, std::span<const Value> x) { return w.unary("tanh", x[0]); },
      "tpu");
  return t;
}

TEST(ProgramText, SharedOperandsAreWrittenOnce) {
  NodePtr a = f32({2, 3}), e = node(kExp, {}, {a}), s = node(kAdd, {}, {e, e});
  EXPECT_EQ(write_text(cut(std::vector{s, e}), table()), R"(module {
  func.func public @main(%arg0: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
    %0 = stablehlo.exponential %arg0 : tensor<2x3xf32>
    %1 = stablehlo.add %0, %0 : tensor<2x3xf32>
    return %1, %0 : tensor<2x3xf32>, tensor<2x3xf32>
  }
}
)");
}

TEST(ProgramText, APlatformsOwnLoweringIsPreferred) {
  NodePtr e = node(kExp, {}, {leaf(DType::kBF16, {}, make_mesh("tpu"))});
  EXPECT_NE(write_text(cut(std::vector{e}), table()).find("stablehlo.tanh %arg0 : tensor<bf16>"),
            std::string::npos);
}

TEST(ProgramText, AnOperationWithoutLoweringIsNamed) {
  NodePtr n = node(kNegate, {}, {f32({2})});
  auto [code, message] = error_of([&] { write_text(cut(std::vector{n}), table()); });
  EXPECT_EQ(code, ErrorCode::kUnimplemented);
  EXPECT_EQ(message, "the operation negate has no lowering for the platform cpu");
}

TEST(ProgramText, ALoweringOfAnotherTypeThanTheRulesIsFound) {
  LoweringTable wrong;
  wrong.add(kNegate.name,
            [](Writer& w, const OpCall&, std::span<const Value> x) { return w.convert(x[0], DType::kF16); });
  NodePtr n = node(kNegate, {}, {f32({2})});
  auto [code, message] = error_of([&] { write_text(cut(std::vector{n}), wrong); });
  EXPECT_EQ(code, ErrorCode::kInternal);
  EXPECT_EQ(message, "internal error: negate: the lowering's type f16[2] is not the shape rule's f32[2]");
}

TEST(Writer, RepeatCarriesAValue) {
  Writer w;
  Value x = w.argument({DType::kF32, {4}});
  Value y = w.repeat(3, x, [&](const Value& counter, const Value& carried) {
    Value part = w.dynamic_slice(carried, std::array{counter}, {1});
    return w.dynamic_update_slice(carried, w.unary("negate", part), std::array{counter});
  });
  EXPECT_EQ(w.module(std::array{y}), R"(module {
  func.func public @main(%arg0: tensor<4xf32>) -> (tensor<4xf32>) {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %1:2 = stablehlo.while(%counter1 = %0, %carried1 = %arg0) : tensor<i32>, tensor<4xf32>
    cond {
      %2 = stablehlo.constant dense<3> : tensor<i32>
      %3 = stablehlo.compare LT, %counter1, %2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    } do {
      %4 = stablehlo.dynamic_slice %carried1, %counter1, sizes = [1] : (tensor<4xf32>, tensor<i32>) -> tensor<1xf32>
      %5 = stablehlo.negate %4 : tensor<1xf32>
      %6 = stablehlo.dynamic_update_slice %carried1, %5, %counter1 : (tensor<4xf32>, tensor<1xf32>, tensor<i32>) -> tensor<4xf32>
      %7 = stablehlo.constant dense<1> : tensor<i32>
      %8 = stablehlo.add %counter1, %7 : tensor<i32>
      stablehlo.return %8, %6 : tensor<i32>, tensor<4xf32>
    }
    return %1#1 : tensor<4xf32>
  }
}
)");
}

// The text of one line, without the module around it.
template <typename F>
std::string body(F write) {
  Writer w;
  Value x = w.argument({DType::kBF16, {2, 3}}), y = w.argument({DType::kF32, {4, 3}});
  std::string text = w.module(std::array{write(w, x, y)});
  std::size_t from = text.find("    %"), to = text.rfind("    return");
  return from == std::string::npos ? "" : text.substr(from, to - from);
}

TEST(Writer, Constants) {
  auto constant = [](double value, DType dtype) {
    return body([&](Writer& w, const Value&, const Value&) { return w.splat(value, {dtype, {2}}); });
  };
  EXPECT_EQ(constant(0.1, DType::kF32),
            "    %0 = stablehlo.constant dense<1.00000000000000006e-01> : tensor<2xf32>\n");
  EXPECT_EQ(constant(-kInfinity, DType::kF32),
            "    %0 = stablehlo.constant dense<0xFF800000> : tensor<2xf32>\n");
  EXPECT_EQ(constant(kInfinity, DType::kBF16),
            "    %0 = stablehlo.constant dense<0x7F80> : tensor<2xbf16>\n");
  EXPECT_EQ(constant(-kInfinity, DType::kF16), "    %0 = stablehlo.constant dense<0xFC00> : tensor<2xf16>\n");
  EXPECT_EQ(constant(kInfinity, DType::kF64),
            "    %0 = stablehlo.constant dense<0x7FF0000000000000> : tensor<2xf64>\n");
  EXPECT_EQ(constant(-7, DType::kI32), "    %0 = stablehlo.constant dense<-7> : tensor<2xi32>\n");
  EXPECT_EQ(constant(1, DType::kBool), "    %0 = stablehlo.constant dense<true> : tensor<2xi1>\n");
}

TEST(Writer, WhatChangesNothingIsNotWritten) {
  EXPECT_EQ(body([](Writer& w, const Value& x, const Value&) { return w.convert(x, DType::kBF16); }), "");
  EXPECT_EQ(body([](Writer& w, const Value& x, const Value&) { return w.reshape(x, {2, 3}); }), "");
  EXPECT_EQ(body([](Writer& w, const Value& x, const Value&) { return w.broadcast_to(x, {2, 3}); }), "");
  EXPECT_EQ(body([](Writer& w, const Value& x, const Value&) { return w.slice_axis(x, 1, 0, 3); }), "");
}

TEST(Writer, ProductsOfF32AskForFullPrecision) {
  std::vector<std::int64_t> one{1};
  EXPECT_EQ(body([&](Writer& w, const Value&, const Value& y) {
              return w.dot_general(y, y, {}, {}, one, one, DType::kF32);
            }),
            "    %0 = stablehlo.dot_general %arg1, %arg1, contracting_dims = [1] x [1], precision = "
            "[HIGHEST, HIGHEST] : "
            "(tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x4xf32>\n");
  std::vector<std::int64_t> zero{0};
  EXPECT_EQ(body([&](Writer& w, const Value& x, const Value&) {
              return w.dot_general(x, x, zero, zero, one, one, DType::kF32);
            }),
            "    %0 = stablehlo.dot_general %arg0, %arg0, batching_dims = [0] x [0], contracting_dims = [1] "
            "x [1], precision = "
            "[DEFAULT, DEFAULT] : (tensor<2x3xbf16>, tensor<2x3xbf16>) -> tensor<2xf32>\n");
}

TEST(Writer, TwoTypesInOneOperationAreAnInternalError) {
  auto [code, message] =
      error_of([] { body([](Writer& w, const Value& x, const Value& y) { return w.binary("add", x, y); }); });
  EXPECT_EQ(code, ErrorCode::kInternal);
  EXPECT_EQ(message, "internal error: add of bf16[2, 3] and f32[4, 3]");
}

}  // namespace
}  // namespace tessera::graph::testing
