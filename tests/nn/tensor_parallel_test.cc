#include "tessera/nn/tensor_parallel.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tessera/base/error.h"
#include "tessera/nn/layers.h"
#include "tests/testing/ranks.h"

namespace tessera::nn {
namespace {

using Floats = std::vector<float>;
using Stretches = std::vector<Stretch>;

TEST(TensorParallelPlans, NameLayersByTheEndsOfTheirPaths) {
  EXPECT_TRUE(matches("blocks.*.attn.to_q", "blocks.12.attn.to_q"));
  EXPECT_TRUE(matches("blocks.*.attn.to_q", "model.blocks.0.attn.to_q"));
  EXPECT_TRUE(matches("head", "head"));
  EXPECT_FALSE(matches("blocks.*.attn.to_q", "single_blocks.0.attn.to_q"));
  EXPECT_FALSE(matches("blocks.*.attn.to_q", "blocks.attn.to_q"));
  EXPECT_FALSE(matches("blocks.*.attn.to_q", "blocks.0.attn2.to_q"));
  EXPECT_FALSE(matches("blocks.*.attn.to_q", "blocks.x.attn.to_q"));
  EXPECT_FALSE(matches("blocks.*.to_q", "blocks.0.attn.to_q"));
  EXPECT_FALSE(matches("head", "forehead"));
}

TEST(TensorParallelStyles, ShareAnAxisOut) {
  EXPECT_EQ(stretches(colwise(12), 1, 4), (Stretches{{3, 6}}));
  EXPECT_EQ(stretches(colwise(12, 4), 1, 2), (Stretches{{6, 12}}));
  TensorParallelStyle packed = packed_rowwise({{8, 2}, {4, 4}});
  EXPECT_EQ(stretches(packed, 0, 2), (Stretches{{0, 4}, {8, 10}}));
  EXPECT_EQ(stretches(packed, 1, 2), (Stretches{{4, 8}, {10, 12}}));
  EXPECT_EQ(local_width(packed, 2), 6);
}

TEST(TensorParallelStyles, RepeatKeyValueHeads) {
  TensorParallelStyle keys = repeated_colwise(20, 2);
  EXPECT_EQ(stretches(keys, 1, 2), (Stretches{{10, 20}}));
  for (int rank = 0; rank < 8; ++rank) {
    Stretches its_head = rank < 4 ? Stretches{{0, 10}} : Stretches{{10, 20}};
    EXPECT_EQ(stretches(keys, rank, 8), its_head) << rank;
  }
  EXPECT_EQ(misfit(keys, 8), "");
  EXPECT_EQ(misfit(keys, 3), "2 heads");
}

TEST(TensorParallelStyles, SayWhatDoesNotDivide) {
  EXPECT_EQ(misfit(colwise(12, 4), 2), "");
  EXPECT_EQ(misfit(colwise(12, 4), 3), "4 heads");
  EXPECT_EQ(misfit(packed_colwise({{12, 12}, {10, 10}}), 4), "a width of 10");
}

// A rank's part of a tensor, of every axis and from any dtype, against taking it element by element.
TEST(SlicedReading, TakesTheStretchesOfAnAxis) {
  auto data = std::make_shared<Floats>(2 * 6 * 3);
  std::iota(data->begin(), data->end(), 0.0f);
  checkpoint::TensorView tensor{"t", DType::kF32, {2, 6, 3}, std::as_bytes(std::span(*data)), data};
  Stretches parts{{1, 3}, {5, 6}};
  checkpoint::HostBlock block = checkpoint::read_stretches(tensor, 1, parts, DType::kF32);
  Floats expected;
  for (int i = 0; i < 2; ++i) {
    for (int j : {1, 2, 5}) {
      for (int k = 0; k < 3; ++k) expected.push_back(static_cast<float>(i * 18 + j * 3 + k));
    }
  }
  std::span<const float> mine = block.as<float>();
  EXPECT_EQ(Floats(mine.begin(), mine.end()), expected);
  EXPECT_FALSE(checkpoint::contiguous_stretch(tensor, 1, parts));
  EXPECT_FALSE(checkpoint::contiguous_stretch(tensor, 1, Stretches{{0, 2}}));
  auto rows = checkpoint::contiguous_stretch(tensor, 0, Stretches{{1, 2}});
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->data(), tensor.data.data() + 18 * 4);
  EXPECT_EQ(rows->size(), 18u * 4);
  EXPECT_THROW(checkpoint::read_stretches(tensor, 1, Stretches{{5, 7}}, DType::kF32), Error);
  EXPECT_EQ(checkpoint::read_stretches(tensor, 1, Stretches{{2, 2}}, DType::kF32).size(), 0u);
}

checkpoint::TensorView counting(const std::string& name, const Shape& shape) {
  auto data = std::make_shared<Floats>(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < data->size(); ++i) (*data)[i] = static_cast<float>(i % 7) - 3;
  return {name, DType::kF32, shape, std::as_bytes(std::span(*data)), data};
}

struct TwoLayers {
  explicit TwoLayers(const Scope& scope) : up(scope / "up", 4, 8), down(scope / "down", 8, 4) {}
  Tensor operator()(const Tensor& x) const { return down(up(x)); }
  Linear up, down;
};

TEST(ShardedLayers, AddUpToTheWholeOnes) {
  checkpoint::TensorSource source("folder", {counting("up.weight", {8, 4}), counting("up.bias", {8}),
                                             counting("down.weight", {4, 8}), counting("down.bias", {4})});
  Context context(testing::with_devices(4));
  Floats values{1, -2, 3, 4}, expected;
  for (int ranks : {1, 2, 4}) {
    graph::MeshPtr mesh = testing::mesh_of(context, ranks);
    TensorParallelPlan plan;
    plan.add("up", colwise(8));
    plan.add("down", rowwise(8));
    ParameterStore store(source, {plan, ranks});
    TwoLayers layers(store.root());
    store.finish();
    EXPECT_TRUE(store.plan_faults().empty());
    store.place(context, mesh, DType::kF32);
    Floats mine = layers(context.from_f32(values, {1, 4}, mesh)).to_f32();
    if (ranks == 1) expected = mine;
    EXPECT_EQ(mine, expected) << ranks;
    std::int64_t bytes = 4 * ((32 + 8 + 32) / ranks + 4);
    EXPECT_EQ(store.bytes(), bytes);
    EXPECT_EQ(store.bytes(DType::kF32), bytes);
    EXPECT_EQ(store.bytes_read(), bytes);
  }
}

TEST(ShardedLayers, FaultsOfAPlanAreListed) {
  checkpoint::TensorSource source("folder", {counting("up.weight", {8, 4}), counting("up.bias", {8}),
                                             counting("down.weight", {4, 8}), counting("down.bias", {4})});
  TensorParallelPlan plan;
  plan.add("up", colwise(8, 4));
  plan.add("down", rowwise(9));
  plan.add("left", colwise(8));
  ParameterStore store(source, {plan, 3});
  TwoLayers layers(store.root());
  EXPECT_EQ(store.plan_faults(),
            (std::vector<std::string>{"up (4 heads)", "the plan names left, which the model does not have",
                                      "the plan shares out 9 of the 8 of down.weight"}));
}

}  // namespace
}  // namespace tessera::nn
