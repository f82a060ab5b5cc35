#include <gtest/gtest.h>

#include "tessera/kernels/common/attention.h"
#include "tessera/kernels/registry.h"
#include "tests/kernels/harness.h"

// An operation in, the program out.
namespace tessera::kernels::testing {
namespace {

using graph::TensorType;

TensorType f32(Shape shape) { return {DType::kF32, shape}; }
TensorType bf16(Shape shape) { return {DType::kBF16, shape}; }

TEST(KernelText, LinearWithBias) {
  EXPECT_EQ(text_of(graph::kLinear, {}, {bf16({2, 3}), bf16({4, 3}), bf16({4})}), R"(module {
  func.func public @main(%arg0: tensor<2x3xbf16>, %arg1: tensor<4x3xbf16>, %arg2: tensor<4xbf16>) -> (tensor<2x4xbf16>) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x3xbf16>, tensor<4x3xbf16>) -> tensor<2x4xbf16>
    %1 = stablehlo.convert %arg2 : (tensor<4xbf16>) -> tensor<4xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
    %3 = stablehlo.convert %0 : (tensor<2x4xbf16>) -> tensor<2x4xf32>
    %4 = stablehlo.add %3, %2 : tensor<2x4xf32>
    %5 = stablehlo.convert %4 : (tensor<2x4xf32>) -> tensor<2x4xbf16>
    return %5 : tensor<2x4xbf16>
  }
}
)");
}

TEST(KernelText, GroupNorm) {
  EXPECT_EQ(text_of(graph::kGroupNorm, {{"groups", std::int64_t{2}}, {"eps", 0.5}},
                    {bf16({1, 4, 3}), bf16({4}), bf16({4})}),
            R"(module {
  func.func public @main(%arg0: tensor<1x4x3xbf16>, %arg1: tensor<4xbf16>, %arg2: tensor<4xbf16>) -> (tensor<1x4x3xbf16>) {
    %0 = stablehlo.reshape %arg0 : (tensor<1x4x3xbf16>) -> tensor<1x2x2x3xbf16>
    %1 = stablehlo.convert %0 : (tensor<1x2x2x3xbf16>) -> tensor<1x2x2x3xf32>
    %2 = stablehlo.constant dense<0.00000000000000000e+00> : tensor<f32>
    %3 = stablehlo.reduce(%1 init: %2) applies stablehlo.add across dimensions = [2, 3] : (tensor<1x2x2x3xf32>, tensor<f32>) -> tensor<1x2xf32>
    %4 = stablehlo.constant dense<1.66666666666666657e-01> : tensor<1x2xf32>
    %5 = stablehlo.multiply %3, %4 : tensor<1x2xf32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [0, 1] : (tensor<1x2xf32>) -> tensor<1x2x2x3xf32>
    %7 = stablehlo.subtract %1, %6 : tensor<1x2x2x3xf32>
    %8 = stablehlo.multiply %7, %7 : tensor<1x2x2x3xf32>
    %9 = stablehlo.constant dense<0.00000000000000000e+00> : tensor<f32>
    %10 = stablehlo.reduce(%8 init: %9) applies stablehlo.add across dimensions = [2, 3] : (tensor<1x2x2x3xf32>, tensor<f32>) -> tensor<1x2xf32>
    %11 = stablehlo.constant dense<1.66666666666666657e-01> : tensor<1x2xf32>
    %12 = stablehlo.multiply %10, %11 : tensor<1x2xf32>
    %13 = stablehlo.constant dense<5.00000000000000000e-01> : tensor<1x2xf32>
    %14 = stablehlo.add %12, %13 : tensor<1x2xf32>
    %15 = stablehlo.rsqrt %14 : tensor<1x2xf32>
    %16 = stablehlo.broadcast_in_dim %15, dims = [0, 1] : (tensor<1x2xf32>) -> tensor<1x2x2x3xf32>
    %17 = stablehlo.multiply %7, %16 : tensor<1x2x2x3xf32>
    %18 = stablehlo.reshape %17 : (tensor<1x2x2x3xf32>) -> tensor<1x4x3xf32>
    %19 = stablehlo.convert %arg1 : (tensor<4xbf16>) -> tensor<4xf32>
    %20 = stablehlo.broadcast_in_dim %19, dims = [1] : (tensor<4xf32>) -> tensor<1x4x3xf32>
    %21 = stablehlo.multiply %18, %20 : tensor<1x4x3xf32>
    %22 = stablehlo.convert %arg2 : (tensor<4xbf16>) -> tensor<4xf32>
    %23 = stablehlo.broadcast_in_dim %22, dims = [1] : (tensor<4xf32>) -> tensor<1x4x3xf32>
    %24 = stablehlo.add %21, %23 : tensor<1x4x3xf32>
    %25 = stablehlo.convert %24 : (tensor<1x4x3xf32>) -> tensor<1x4x3xbf16>
    return %25 : tensor<1x4x3xbf16>
  }
}
)");
}

TEST(KernelText, AttentionInOneBlock) {
  EXPECT_EQ(text_of(graph::kAttention, {{"scale", 0.5}, {"causal", true}},
                    {bf16({1, 3, 2, 4}), bf16({1, 5, 2, 4}), bf16({1, 5, 2, 4})}),
            R"(module {
  func.func public @main(%arg0: tensor<1x3x2x4xbf16>, %arg1: tensor<1x5x2x4xbf16>, %arg2: tensor<1x5x2x4xbf16>) -> (tensor<1x3x2x4xbf16>) {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<1x3x2x4xbf16>, tensor<1x5x2x4xbf16>) -> tensor<1x2x3x5xf32>
    %2 = stablehlo.constant dense<5.00000000000000000e-01> : tensor<1x2x3x5xf32>
    %3 = stablehlo.multiply %1, %2 : tensor<1x2x3x5xf32>
    %4 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<i32>) -> tensor<3x5xi32>
    %5 = stablehlo.iota dim = 0 : tensor<3x5xi32>
    %6 = stablehlo.add %5, %4 : tensor<3x5xi32>
    %7 = stablehlo.iota dim = 1 : tensor<3x5xi32>
    %8 = stablehlo.compare LT, %6, %7 : (tensor<3x5xi32>, tensor<3x5xi32>) -> tensor<3x5xi1>
    %9 = stablehlo.broadcast_in_dim %8, dims = [2, 3] : (tensor<3x5xi1>) -> tensor<1x2x3x5xi1>
    %10 = stablehlo.constant dense<0xFF800000> : tensor<1x2x3x5xf32>
    %11 = stablehlo.select %9, %10, %3 : tensor<1x2x3x5xi1>, tensor<1x2x3x5xf32>
    %12 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %13 = stablehlo.reduce(%11 init: %12) applies stablehlo.maximum across dimensions = [3] : (tensor<1x2x3x5xf32>, tensor<f32>) -> tensor<1x2x3xf32>
    %14 = stablehlo.constant dense<-3.40282346638528860e+38> : tensor<1x2x3xf32>
    %15 = stablehlo.maximum %13, %14 : tensor<1x2x3xf32>
    %16 = stablehlo.broadcast_in_dim %15, dims = [0, 1, 2] : (tensor<1x2x3xf32>) -> tensor<1x2x3x5xf32>
    %17 = stablehlo.subtract %11, %16 : tensor<1x2x3x5xf32>
    %18 = stablehlo.exponential %17 : tensor<1x2x3x5xf32>
    %19 = stablehlo.constant dense<0.00000000000000000e+00> : tensor<f32>
    %20 = stablehlo.reduce(%18 init: %19) applies stablehlo.add across dimensions = [3] : (tensor<1x2x3x5xf32>, tensor<f32>) -> tensor<1x2x3xf32>
    %21 = stablehlo.constant dense<0.00000000000000000e+00> : tensor<1x2x3xf32>
    %22 = stablehlo.compare EQ, %20, %21 : (tensor<1x2x3xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xi1>
    %23 = stablehlo.constant dense<1.00000000000000000e+00> : tensor<1x2x3xf32>
    %24 = stablehlo.select %22, %23, %20 : tensor<1x2x3xi1>, tensor<1x2x3xf32>
    %25 = stablehlo.broadcast_in_dim %24, dims = [0, 1, 2] : (tensor<1x2x3xf32>) -> tensor<1x2x3x5xf32>
    %26 = stablehlo.divide %18, %25 : tensor<1x2x3x5xf32>
    %27 = stablehlo.convert %26 : (tensor<1x2x3x5xf32>) -> tensor<1x2x3x5xbf16>
    %28 = stablehlo.dot_general %27, %arg2, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [DEFAULT, DEFAULT] : (tensor<1x2x3x5xbf16>, tensor<1x5x2x4xbf16>) -> tensor<1x2x3x4xbf16>
    %29 = stablehlo.transpose %28, dims = [0, 2, 1, 3] : (tensor<1x2x3x4xbf16>) -> tensor<1x3x2x4xbf16>
    return %29 : tensor<1x3x2x4xbf16>
  }
}
)");
}

TEST(KernelText, AttentionInSeveralBlocks) {
  graph::LoweringTable table = lowerings();
  table.add(graph::kAttention.name,
            [](graph::Writer& w, const graph::OpCall& call, std::span<const graph::Value> x) {
              return lower_attention(w, call, x, 2 * 40);  // two rows of two heads and five keys
            });
  EXPECT_EQ(text_of(graph::kAttention, {{"scale", 0.5}, {"causal", false}},
                    {f32({1, 3, 2, 4}), f32({1, 5, 2, 4}), f32({1, 5, 2, 4}), f32({1, 1, 3, 5})}, &table),
            R"(module {
  func.func public @main(%arg0: tensor<1x3x2x4xf32>, %arg1: tensor<1x5x2x4xf32>, %arg2: tensor<1x5x2x4xf32>, %arg3: tensor<1x1x3x5xf32>) -> (tensor<1x3x2x4xf32>) {
    %0 = stablehlo.constant dense<0.00000000000000000e+00> : tensor<1x3x2x4xf32>
    %1 = stablehlo.constant dense<0> : tensor<i32>
    %2:2 = stablehlo.while(%counter2 = %1, %carried2 = %0) : tensor<i32>, tensor<1x3x2x4xf32>
    cond {
      %3 = stablehlo.constant dense<2> : tensor<i32>
      %4 = stablehlo.compare LT, %counter2, %3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %4 : tensor<i1>
    } do {
      %5 = stablehlo.constant dense<2> : tensor<i32>
      %6 = stablehlo.multiply %counter2, %5 : tensor<i32>
      %7 = stablehlo.constant dense<1> : tensor<i32>
      %8 = stablehlo.minimum %6, %7 : tensor<i32>
      %9 = stablehlo.constant dense<0> : tensor<i32>
      %10 = stablehlo.dynamic_slice %arg0, %9, %8, %9, %9, sizes = [1, 2, 2, 4] : (tensor<1x3x2x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x2x4xf32>
      %11 = stablehlo.dynamic_slice %arg3, %9, %9, %8, %9, sizes = [1, 1, 2, 5] : (tensor<1x1x3x5xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x1x2x5xf32>
      %12 = stablehlo.dot_general %10, %arg1, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [HIGHEST, HIGHEST] : (tensor<1x2x2x4xf32>, tensor<1x5x2x4xf32>) -> tensor<1x2x2x5xf32>
      %13 = stablehlo.constant dense<5.00000000000000000e-01> : tensor<1x2x2x5xf32>
      %14 = stablehlo.multiply %12, %13 : tensor<1x2x2x5xf32>
      %15 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2, 3] : (tensor<1x1x2x5xf32>) -> tensor<1x2x2x5xf32>
      %16 = stablehlo.add %14, %15 : tensor<1x2x2x5xf32>
      %17 = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %18 = stablehlo.reduce(%16 init: %17) applies stablehlo.maximum across dimensions = [3] : (tensor<1x2x2x5xf32>, tensor<f32>) -> tensor<1x2x2xf32>
      %19 = stablehlo.constant dense<-3.40282346638528860e+38> : tensor<1x2x2xf32>
      %20 = stablehlo.maximum %18, %19 : tensor<1x2x2xf32>
      %21 = stablehlo.broadcast_in_dim %20, dims = [0, 1, 2] : (tensor<1x2x2xf32>) -> tensor<1x2x2x5xf32>
      %22 = stablehlo.subtract %16, %21 : tensor<1x2x2x5xf32>
      %23 = stablehlo.exponential %22 : tensor<1x2x2x5xf32>
      %24 = stablehlo.constant dense<0.00000000000000000e+00> : tensor<f32>
      %25 = stablehlo.reduce(%23 init: %24) applies stablehlo.add across dimensions = [3] : (tensor<1x2x2x5xf32>, tensor<f32>) -> tensor<1x2x2xf32>
      %26 = stablehlo.constant dense<0.00000000000000000e+00> : tensor<1x2x2xf32>
      %27 = stablehlo.compare EQ, %25, %26 : (tensor<1x2x2xf32>, tensor<1x2x2xf32>) -> tensor<1x2x2xi1>
      %28 = stablehlo.constant dense<1.00000000000000000e+00> : tensor<1x2x2xf32>
      %29 = stablehlo.select %27, %28, %25 : tensor<1x2x2xi1>, tensor<1x2x2xf32>
      %30 = stablehlo.broadcast_in_dim %29, dims = [0, 1, 2] : (tensor<1x2x2xf32>) -> tensor<1x2x2x5xf32>
      %31 = stablehlo.divide %23, %30 : tensor<1x2x2x5xf32>
      %32 = stablehlo.dot_general %31, %arg2, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [HIGHEST, HIGHEST] : (tensor<1x2x2x5xf32>, tensor<1x5x2x4xf32>) -> tensor<1x2x2x4xf32>
      %33 = stablehlo.transpose %32, dims = [0, 2, 1, 3] : (tensor<1x2x2x4xf32>) -> tensor<1x2x2x4xf32>
      %34 = stablehlo.dynamic_update_slice %carried2, %33, %9, %8, %9, %9 : (tensor<1x3x2x4xf32>, tensor<1x2x2x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x3x2x4xf32>
      %35 = stablehlo.constant dense<1> : tensor<i32>
      %36 = stablehlo.add %counter2, %35 : tensor<i32>
      stablehlo.return %36, %34 : tensor<i32>, tensor<1x3x2x4xf32>
    }
    return %2#1 : tensor<1x3x2x4xf32>
  }
}
)");
}

TEST(KernelText, Convolution) {
  EXPECT_EQ(text_of(graph::kConv2d, {{"stride", std::int64_t{2}}, {"padding", std::int64_t{1}}},
                    {f32({1, 3, 8, 9}), f32({4, 3, 3, 3})}),
            R"(module {
  func.func public @main(%arg0: tensor<1x3x8x9xf32>, %arg1: tensor<4x3x3x3xf32>) -> (tensor<1x4x4x5xf32>) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [2, 2], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<1x3x8x9xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x4x5xf32>
    return %0 : tensor<1x4x4x5xf32>
  }
}
)");
}

}  // namespace
}  // namespace tessera::kernels::testing
