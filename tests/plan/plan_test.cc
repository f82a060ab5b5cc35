#include "tessera/plan/plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tests/testing/tpu.h"

namespace tessera::plan {
namespace {

using ::testing::HasSubstr;

TEST(Plan, OtherNamesOfTopologies) {
  EXPECT_EQ(topology_name("v6e-8"), "v6e:2x4");
  EXPECT_EQ(topology_name("v6e-256"), "v6e:16x16");
  EXPECT_EQ(topology_name("v5e-4"), "v5e:2x2");
  EXPECT_EQ(topology_name("v5litepod-16"), "v5e:4x4");
  EXPECT_EQ(topology_name("v7x-8"), "tpu7x:2x2x1");
  EXPECT_EQ(topology_name("tpu7x-128"), "tpu7x:4x4x4");
  EXPECT_EQ(topology_name("v7x:2x2x1"), "tpu7x:2x2x1");
  EXPECT_EQ(topology_name("v6e:1x1"), "v6e:1x1");
  EXPECT_EQ(topology_name("v6e-3"), "v6e-3");
  EXPECT_EQ(topology_name("v6e"), "v6e");
  EXPECT_EQ(topology_name(""), "");
}

// With a count of devices that follows from the name.
TEST(Plan, EveryOtherNameIsOneThatLibtpuKnows) {
  TESSERA_NEEDS_LIBTPU();
  for (const char* family : {"v6e", "v5e", "v7x"}) {
    for (int count : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
      std::string name = fmt::format("{}-{}", family, count);
      std::string known = topology_name(name);
      if (known == name) continue;
      EXPECT_EQ(testing::tpu_topology(known).devices().size(), static_cast<std::size_t>(count)) << name;
    }
  }
}

TEST(Plan, FitsAndBounds) {
  Plan p;
  p.chip = {"chip", 100, 8, 2, 10, 1000, 50, 20};
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
  EXPECT_EQ(p.bytes(Residence::kAll), 158);
  EXPECT_EQ(p.bytes(Residence::kOffload), 98);
  EXPECT_EQ(p.bound_seconds_per_image(Residence::kAll), 2 + 4 * 3);
  EXPECT_EQ(p.bound_seconds_per_image(Residence::kOffload), 2 + 4 * 3 + 150.0 / 20);
  EXPECT_THAT(p.advice(), HasSubstr("fits with --offload model"));
}

TEST(Plan, BoundsOfLinks) {
  Plan p;
  p.chip = {"chip", 100, 8, 2, 10, 1000, 50, 20};
  p.tensor_parallel = 8;
  ComponentPlan c;
  c.flops = 10;
  c.reduced_bytes = 400;
  EXPECT_EQ(p.link_bytes(c), 2 * 7.0 / 8 * 400);
  // Four chips of two devices.
  EXPECT_EQ(p.bound_of_call(c).seconds, 2 * 3.0 / 4 * 400 / 50);
  EXPECT_EQ(p.bound_of_call(c).by, "links");
  p.tensor_parallel = 2;  // within a chip
  EXPECT_EQ(p.bound_of_call(c).by, "operations");
  p.tensor_parallel = 1;
  EXPECT_EQ(p.link_bytes(c), 0);
}

// One CLIP text model: twelve layers, of which one is compiled.
TEST(Plan, BlocksAreCompiledOnceAndCounted) {
  TESSERA_NEEDS_LIBTPU();
  ModelFacts facts = *published("flux.1-schnell");
  facts.components.resize(1);
  Plan p = make_plan(facts, {}, "v6e-1");
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
    make_plan(*published("flux.1-schnell"), {}, "v6e:3x7");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("not divisible"));  // libtpu's own words
    EXPECT_THAT(e.what(), HasSubstr("v6e:2x4 (v6e-8)"));
  }
}

}  // namespace
}  // namespace tessera::plan
