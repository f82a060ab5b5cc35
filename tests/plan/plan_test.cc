#include "tessera/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tests/testing/tpu.h"

namespace tessera::plan {
namespace {

using ::testing::HasSubstr;

TEST(Plan, OtherNamesOfTopologies) {
  EXPECT_EQ(topology_name("v6e-8"), "v6e:2x4");
  EXPECT_EQ(topology_name("v7x-8"), "tpu7x:2x2x1");
  EXPECT_EQ(topology_name("v7x:2x2x1"), "tpu7x:2x2x1");
  EXPECT_EQ(topology_name("v6e:1x1"), "v6e:1x1");
}

TEST(Plan, FitsAndBounds) {
  Plan p{"m", "t", {"chip", 100, 1, 10, 1000}, {}};
  ComponentPlan encoder, transformer;
  encoder.weight_bytes = 60;
  encoder.working_bytes = 5;
  encoder.flops = 20;
  encoder.calls = 1;
  transformer.weight_bytes = 90;
  transformer.working_bytes = 8;
  transformer.flops = 10;
  transformer.bytes_accessed = 3000;
  transformer.calls = 4;
  p.components = {encoder, transformer};
  EXPECT_EQ(p.resident_bytes(), 158);
  EXPECT_EQ(p.offload_bytes(), 98);
  EXPECT_EQ(p.min_chips(false), 2);
  EXPECT_EQ(p.min_chips(true), 1);
  EXPECT_EQ(p.bound_seconds_per_image(), 2 + 4 * 3);
  EXPECT_THAT(p.advice(), HasSubstr("fits with --offload model"));
}

// One CLIP text model: twelve layers, of which one is compiled.
TEST(Plan, BlocksAreCompiledOnceAndCounted) {
  TESSERA_NEEDS_LIBTPU();
  ModelFacts facts = *published("flux.1-schnell");
  facts.components.resize(1);
  Plan p = make_plan(facts, {}, "v6e-1", {});
  ASSERT_EQ(p.components.size(), 1u);
  const ComponentPlan& clip = p.components[0];
  EXPECT_EQ(clip.weight_bytes, 246120960);
  EXPECT_LE(clip.programs.size(), 5u);
  std::int64_t most = 0;
  for (const PlannedProgram& program : clip.programs) most = std::max(most, program.calls);
  EXPECT_GE(most, 11);
  EXPECT_GT(clip.flops, 12e9);
  EXPECT_EQ(p.chip.memory_bytes, 33546042880);
  EXPECT_THAT(p.advice(), HasSubstr("fits resident"));
}

TEST(Plan, ATopologyThatDoesNotExist) {
  TESSERA_NEEDS_LIBTPU();
  try {
    make_plan(*published("flux.1-schnell"), {}, "v6e:3x7", {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("v6e:2x4"));
  }
}

}  // namespace
}  // namespace tessera::plan
