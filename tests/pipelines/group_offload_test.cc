#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/models/flux2_transformer.h"
#include "tessera/models/flux_transformer.h"
#include "tessera/models/sd3_transformer.h"
#include "tessera/nn/block_stream.h"
#include "tessera/pipelines/lone_component.h"
#include "tessera/pipelines/text_to_image.h"
#include "tessera/runtime/traced_mesh.h"
#include "tests/testing/modes.h"
#include "tests/testing/random_model.h"
#include "tests/testing/small_call.h"

// Components whose repeated blocks come to the device one by one.
namespace tessera::pipelines {
namespace {

namespace fs = std::filesystem;

using testing::compact;
using ::testing::HasSubstr;
using testing::load;
using testing::name;
using testing::small_call;
using testing::Way;

constexpr Way kWithoutWhole[] = {Way::kEager, Way::kBlocking, Way::kFused, Way::kCompileBlocks};

fs::path flux(int layers, int single_layers) {
  return testing::with_random_transformer<models::FluxTransformer, models::FluxTransformerConfig>(
      compact("flux1-schnell"), {{"num_layers", layers}, {"num_single_layers", single_layers}},
      fs::path(::testing::TempDir()) / fmt::format("flux_{}_{}", layers, single_layers));
}

std::int64_t transformer_bytes(const TextToImage& pipeline) {
  for (const Component* component : pipeline.components()) {
    if (component->name == "transformer") return component->store->bytes(DType::kF32);
  }
  return 0;
}

void expect_the_same_picture(const fs::path& model) {
  for (Way way : kWithoutWhole) {
    Context context(testing::options(way));
    auto pipeline = load(model, context, way);
    auto wanted = pipeline->generate(small_call()).images[0].pixels;
    pipeline->enable_group_offload(DeviceName{});
    std::int64_t before = context.memory(*context.mesh()).in_use();
    std::int64_t programs = context.statistics().programs;
    Result result = pipeline->generate(small_call());
    EXPECT_EQ(result.images[0].pixels, wanted) << model << " " << name(way);
    EXPECT_EQ(result.host_transfers_in_loop, 0) << model << " " << name(way);
    EXPECT_EQ(context.statistics().programs, programs) << model << " " << name(way);
    EXPECT_EQ(context.memory(*context.mesh()).in_use(), before) << model << " " << name(way);
  }
}

TEST(GroupOffload, IsBitEqual) {
  for (const char* model : {"flux1-schnell", "sd35-medium", "flux2-dev", "flux2-klein"})
    expect_the_same_picture(compact(model));
}

TEST(GroupOffload, OfOneBlockOfEachKind) { expect_the_same_picture(flux(1, 1)); }

// A component that is three times as large as the device.
TEST(GroupOffload, RunsWhatTheDeviceCannotHold) {
  fs::path model = flux(12, 24);
  for (Way way : kWithoutWhole) {
    Context plain(testing::options(way));
    auto resident = load(model, plain, way);
    auto wanted = resident->generate(small_call()).images[0].pixels;
    std::int64_t third = transformer_bytes(*resident) / 3;
    Context::Options limited = testing::options(way);
    limited.memory_limit = third;
    Context context(limited);
    auto pipeline = load(model, context, way);
    pipeline->enable_group_offload(DeviceName{});
    EXPECT_EQ(pipeline->generate(small_call()).images[0].pixels, wanted) << name(way);
    std::int64_t peak = context.memory(*context.mesh()).peak();
    EXPECT_LE(peak, third) << name(way);
    // Whole it does not fit, which leaves nothing behind.
    pipeline->enable_model_cpu_offload(DeviceName{});
    EXPECT_THROW(pipeline->generate(small_call()), Error) << name(way);
    EXPECT_LT(context.memory(*context.mesh()).in_use(), third / 100) << name(way);
  }
}

// While a block runs, the next one is being uploaded.
TEST(GroupOffload, UploadsWhileItComputes) {
  Context context(testing::options(Way::kBlocking));
  TracedMesh traced(context, context.mesh());
  traced.keep_events(true);
  auto lone = LoneComponent::load(checkpoint::ModelFolder::open(flux(12, 24).string()), "transformer");
  CallSizes input{.height = 64, .width = 64};
  auto call = lone->call(input, context, traced.mesh(), DType::kF32);
  nn::BlockStream stream(*lone->component().module, *lone->component().store, context, traced.mesh(),
                         DType::kF32, [&](const std::string& block, const std::function<void()>& upload) {
                           traced.event(block, "upload", upload);
                         });
  call();  // compiles
  std::size_t begin = traced.events().size();
  call();
  std::vector<TracedMesh::Event> events(traced.events().begin() + static_cast<std::ptrdiff_t>(begin),
                                        traced.events().end());
  int uploads = 0, during = 0;
  for (const TracedMesh::Event& upload : events) {
    if (upload.category != "upload") continue;
    ++uploads;
    during += std::ranges::any_of(events, [&](const TracedMesh::Event& e) {
      return e.category == "program" && !e.name.starts_with(upload.name + ".") &&
             e.name.find("blocks.") != e.name.npos && e.start < upload.start + upload.seconds &&
             upload.start < e.start + e.seconds;
    });
  }
  // The last one, for the next call, may outlast this one.
  EXPECT_GE(uploads, 35);
  EXPECT_GE(during, uploads * 3 / 4) << uploads;
}

TEST(GroupOffload, AfterAnErrorTheNextCallIsAsEver) {
  Context context(testing::options(Way::kFused));
  auto pipeline = load(compact("flux1-schnell"), context, Way::kFused);
  pipeline->enable_group_offload(DeviceName{});
  auto wanted = pipeline->generate(small_call()).images[0].pixels;
  std::int64_t before = context.memory(*context.mesh()).in_use();
  Hooks hooks;
  hooks.on_step = [](const Step&) -> bool { throw std::runtime_error("enough"); };
  EXPECT_THROW(pipeline->generate(small_call(), hooks), std::runtime_error);
  EXPECT_EQ(context.memory(*context.mesh()).in_use(), before);
  EXPECT_EQ(pipeline->generate(small_call()).images[0].pixels, wanted);
}

TEST(GroupOffload, WhatDoesNotFitBlockByBlockLeavesNothing) {
  Context::Options limited;
  limited.memory_limit = 400'000;
  Context context(limited);
  auto pipeline = load(compact("flux1-schnell"), context, Way::kEager);
  pipeline->enable_group_offload(DeviceName{});
  for (int i = 0; i < 2; ++i) {
    try {
      pipeline->generate(small_call());
      ADD_FAILURE() << "it did fit";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kOutOfMemory);
    }
    EXPECT_EQ(context.memory(*context.mesh()).in_use(), 0);
  }
}

TEST(GroupOffload, AnotherSizeAndBackAgain) {
  Context context(testing::options(Way::kCompileBlocks));
  auto pipeline = load(compact("flux1-schnell"), context, Way::kCompileBlocks);
  pipeline->enable_group_offload(DeviceName{});
  auto wanted = pipeline->generate(small_call()).images[0].pixels;
  Arguments wide = small_call();
  wide.width = 96;
  EXPECT_EQ(pipeline->generate(wide).width, 96);
  std::int64_t compiles = context.statistics().compiles;
  EXPECT_EQ(pipeline->generate(small_call()).images[0].pixels, wanted);
  EXPECT_EQ(context.statistics().compiles, compiles);
}

TEST(GroupOffload, ThreadsTakeTurns) {
  Context context(testing::options(Way::kFused));
  auto pipeline = load(compact("flux1-schnell"), context, Way::kFused);
  pipeline->enable_group_offload(DeviceName{});
  auto wanted = pipeline->generate(small_call()).images[0].pixels;
  std::vector<std::vector<std::uint8_t>> pictures(4);
  std::vector<std::thread> threads;
  for (auto& picture : pictures)
    threads.emplace_back([&] { picture = pipeline->generate(small_call()).images[0].pixels; });
  for (std::thread& thread : threads) thread.join();
  for (const auto& picture : pictures) EXPECT_EQ(picture, wanted);
}

TEST(GroupOffload, RefusesAComponentThatIsOneProgram) {
  Context context;
  auto pipeline = load(compact("flux1-schnell"), context, Way::kEager);
  pipeline->module("transformer").compile();
  pipeline->enable_group_offload(DeviceName{});
  try {
    pipeline->generate(small_call());
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(e.what(), HasSubstr("FluxTransformer2DModel is compiled as a whole"));
    EXPECT_THAT(e.what(), HasSubstr("compile_repeated_blocks"));
  }
  // A decoder has no repeated blocks, and comes as a whole.
  pipeline->module("transformer").compile_nothing();
  pipeline->module("vae").compile();
  EXPECT_EQ(pipeline->generate(small_call()).images.size(), 1u);
}

}  // namespace
}  // namespace tessera::pipelines
