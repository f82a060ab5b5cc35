#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/plan/plan.h"
#include "tests/testing/tpu.h"

namespace tessera::plan {
namespace {

// FLUX.2-dev's transformer with 8 of its 48 heads: a head a rank.
ModelFacts small_flux2() {
  ModelFacts facts = *published("flux.2-dev");
  std::erase_if(facts.components, [](const auto& c) { return c.name != "transformer"; });
  nlohmann::json& config = facts.components.at(0).config;
  config["num_attention_heads"] = 8;
  config["joint_attention_dim"] = 1024;
  return facts;
}

// The programs of 8 ranks, as TPUs would run them, all-reduces included.
TEST(TensorParallelPlan, EightRanksCompileForEachTopologyOfEight) {
  TESSERA_NEEDS_LIBTPU();
  for (const char* topology : {"v6e:2x4", "tpu7x:2x2x1"}) {
    ModelFacts facts = small_flux2();
    Request request;
    request.height = request.width = 256;
    request.tensor_parallel = 8;
    Plan plan = make_plan(facts, request, topology);
    const ComponentPlan& eight = plan.components.at(0);
    // Blocks are shared out, and they are nearly all of it.
    EXPECT_LT(eight.weight_bytes, weights_of(facts, facts.components.at(0), request, 1).bytes / 3)
        << topology;
    // Four all-reduces in each of 8 double blocks and one in each of 48 single blocks: bf16 over 256 latent
    // and 512 text tokens, in the double blocks each in two of the four.
    std::int64_t width = 8 * 128;
    EXPECT_EQ(eight.reduced_bytes, 2 * width * (8 * 2 * (256 + 512) + 48 * (256 + 512))) << topology;
    EXPECT_TRUE(std::ranges::any_of(eight.programs, [](const PlannedProgram& p) { return p.calls == 48; }));
  }
}

}  // namespace
}  // namespace tessera::plan
