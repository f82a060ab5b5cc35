#include "tessera/nn/parameter.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/nn/layers.h"

namespace tessera::nn {
namespace {

checkpoint::TensorView tensor(const std::string& name, const Shape& shape) {
  auto data = std::make_shared<std::vector<float>>(static_cast<std::size_t>(shape.elements()), 1.0f);
  return {name, DType::kF32, shape, std::as_bytes(std::span(*data)), data};
}

TEST(Parameters, MissingUnexpectedAndMisshapenAreOneError) {
  std::vector<checkpoint::TensorView> tensors{tensor("a.weight", {2, 3}), tensor("vision.x", {1})};
  for (int i = 0; i < 12; ++i) tensors.push_back(tensor("extra" + std::to_string(i), {1}));
  ParameterStore store(checkpoint::TensorSource("folder", tensors));
  Scope root = store.root();
  Linear a(root / "a", 4, 2);
  root.ignore("vision.");
  try {
    store.finish();
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kDataLoss);
    EXPECT_EQ(std::string(e.what()),
              "folder: the tensors do not fit the config; 1 missing: a.bias; 12 unexpected: extra0, extra1, "
              "extra10, extra11, "
              "extra2, extra3, extra4, extra5, extra6, extra7 and 2 more; 1 misshapen: a.weight is [2, 3], "
              "the config says "
              "[2, 4]");
  }
}

TEST(Parameters, ArePlacedDroppedAndPlacedAgain) {
  Context context;
  ParameterStore store(
      checkpoint::TensorSource("folder", {tensor("fc.weight", {2, 3}), tensor("fc.bias", {2})}));
  Linear fc(store.root() / "fc", 3, 2);
  store.finish();
  std::vector<float> values{1, 2, 3};
  Tensor x = context.from_f32(values, {1, 3}, context.mesh());
  EXPECT_THROW(fc(x), Error);
  for (int round = 0; round < 2; ++round) {
    store.place(context, context.mesh(), DType::kF32);
    EXPECT_EQ(store.bytes(), 32);
    EXPECT_EQ(fc(x).to_f32(), (std::vector<float>{7, 7}));
    std::int64_t before = context.memory(*context.mesh()).in_use();
    store.drop();
    EXPECT_EQ(context.memory(*context.mesh()).in_use(), before - 32);
  }
  store.place(context, context.mesh(), DType::kBF16);
  EXPECT_EQ(store.bytes(), 16);
}

// On a platform that uses host memory in place, what was launched still reads the weights after they were
// dropped: their memory must live until it has run.
TEST(Parameters, LiveUntilWhatWasLaunchedHasRun) {
  constexpr std::int64_t kWidth = 512;
  struct alignas(64) Block {
    std::array<float, kWidth * kWidth> values;
  };
  auto memory = std::make_shared<Block>();
  memory->values.fill(1.0f / kWidth);
  // Whoever lets go of the weight spoils it.
  std::shared_ptr<const void> owner(memory.get(), [](Block* block) { block->values.fill(NAN); });
  checkpoint::TensorView view{
      "fc.weight", DType::kF32, {kWidth, kWidth}, std::as_bytes(std::span(memory->values)), std::move(owner)};
  std::weak_ptr<const void> watch = view.owner;
  {
    Context context;
    Tensor x = context.from_f32(std::vector<float>(kWidth * kWidth, 1.0f), {kWidth, kWidth}, context.mesh());
    {
      ParameterStore store(checkpoint::TensorSource("folder", {std::move(view)}));
      Linear fc(store.root() / "fc", kWidth, kWidth, /*bias=*/false);
      store.place(context, context.mesh(), DType::kF32);
      for (int i = 0; i < 100; ++i) x = fc(x);
    }
    for (float value : x.to_f32()) ASSERT_NEAR(value, 1.0f, 1e-3);
  }
  EXPECT_TRUE(watch.expired()) << "the weight's memory is held for ever";
}

TEST(Layers, ErrorsNameTheirPlace) {
  Context context;
  ParameterStore store(checkpoint::TensorSource(
      "folder", {tensor("blocks.3.to_q.weight", {2, 3}), tensor("blocks.3.to_q.bias", {2})}));
  Linear fc(store.root() / "blocks" / 3 / "to_q", 3, 2);
  store.place(context, context.mesh(), DType::kF32);
  std::vector<float> values{1, 2};
  try {
    fc(context.from_f32(values, {1, 2}, context.mesh()));
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("(in blocks.3.to_q)"), std::string::npos) << e.what();
  }
}

TEST(Layers, AnUnknownActivationIsNamed) {
  try {
    activation("swoosh");
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("swoosh"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("quick_gelu"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::nn
