#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/plan/plan.h"
#include "tests/testing/tpu.h"

// What fits where, of the published models at 1024 x 1024 in bf16: minutes of libtpu's compiler each.
namespace tessera::plan {
namespace {

using ::testing::HasSubstr;

Plan plan_of(const char* model, const char* topology, int ranks = 1) {
  Request request;
  request.tensor_parallel = ranks;
  return make_plan(*published(model), request, topology);
}

std::vector<std::string> names_bound_by(const Plan& plan, std::string_view what) {
  std::vector<std::string> out;
  for (const ComponentPlan& c : plan.components) {
    if (plan.bound_of_call(c).by == what) out.push_back(c.name);
  }
  return out;
}

TEST(SlowPlanOfFlux1, NeedsOffloadOnOneV6e) {
  TESSERA_NEEDS_LIBTPU();
  Plan p = plan_of("flux.1-schnell", "v6e:1x1");
  EXPECT_FALSE(p.fits(Residence::kAll));
  EXPECT_TRUE(p.fits(Residence::kOffload));
  EXPECT_EQ(p.min_ranks, 2);
  EXPECT_EQ(p.min_ranks_offload, 1);
  EXPECT_EQ(p.weight_bytes(), 246120960 + 9524621312 + 23782357120 + 99090950);
  EXPECT_LE(p.components[2].scratch_bytes, 400 * 1000 * 1000);  // of the transformer
  EXPECT_THAT(p.advice(), HasSubstr("fits with --offload model"));
  // 313 TFLOP in four steps, and the encoders and the decoder.
  EXPECT_GT(p.bound_seconds_per_image(Residence::kAll), 0.34);
  EXPECT_LT(p.bound_seconds_per_image(Residence::kAll), 1.0);
}

TEST(SlowPlanOfStableDiffusion3, FitsOnOneV6e) {
  TESSERA_NEEDS_LIBTPU();
  Plan p = plan_of("sd3.5-medium", "v6e-1");
  EXPECT_TRUE(p.fits(Residence::kAll));
  EXPECT_EQ(p.min_ranks, 1);
  EXPECT_EQ(p.min_ranks_offload, 1);
  EXPECT_THAT(p.advice(), HasSubstr("fits resident on 1 chip"));
}

TEST(SlowPlanOfFlux2, DoesNotFitOnOneV6e) {
  TESSERA_NEEDS_LIBTPU();
  Plan p = plan_of("flux.2-dev", "v6e:1x1");
  EXPECT_FALSE(p.fits(Residence::kAll));
  EXPECT_FALSE(p.fits(Residence::kOffload));
  EXPECT_THAT(p.advice(), HasSubstr("on a larger topology"));
}

TEST(SlowPlanOfFlux2, FitsOnEightV6e) {
  TESSERA_NEEDS_LIBTPU();
  Plan p = plan_of("flux.2-dev", "v6e:2x4", 8);
  EXPECT_TRUE(p.fits(Residence::kAll));
  EXPECT_EQ(p.min_ranks, 4);
  EXPECT_EQ(p.min_ranks_offload, 4);
  // Each block of 4608 tokens, 6144 wide, in bf16, is added up over the ranks: 8 double ones twice
  // (attention, feed-forward), 48 single ones once.
  EXPECT_EQ(p.components[1].reduced_bytes, std::int64_t{8 * 2 + 48} * 4608 * 6144 * 2);
  EXPECT_THAT(names_bound_by(p, "links"), ::testing::IsEmpty());
}

TEST(SlowPlanOfFlux2, OnV7x) {
  TESSERA_NEEDS_LIBTPU();
  Plan p = plan_of("flux.2-dev", "v7x-8");
  EXPECT_EQ(p.chip.devices, 8);
  EXPECT_EQ(p.chip.devices_per_chip, 2);
  // One device of a chip, of 94.7 GiB, is enough, if only just.
  EXPECT_TRUE(p.fits(Residence::kAll));
  EXPECT_TRUE(p.fits(Residence::kOffload));
  EXPECT_EQ(p.min_ranks, 1);
  EXPECT_EQ(p.min_ranks_offload, 1);
}

}  // namespace
}  // namespace tessera::plan
