#include "tessera/pipelines/arguments.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera::pipelines {
namespace {

TEST(Arguments, ThoseThatAPipelineLacksAreRefusedByName) {
  Arguments plain{
      .prompt = {"x"}, .height = 64, .num_inference_steps = 2, .sigmas = {{1.0, 0.5}}, .seeds = {1}};
  EXPECT_EQ(lacking_argument("FluxPipeline", plain), std::nullopt);
  EXPECT_NO_THROW(refuse_lacking_arguments("FluxPipeline", plain));

  Arguments known = plain;
  known.prompt_2 = {{"y"}};
  known.true_cfg_scale = 2;
  EXPECT_EQ(lacking_argument("FluxPipeline", known), std::nullopt);
  EXPECT_EQ(lacking_argument("StableDiffusion3Pipeline", known), "true_cfg_scale");

  Arguments skip = plain;
  skip.skip_guidance_layers = {{1, 2}};
  EXPECT_EQ(lacking_argument("FluxPipeline", skip), "skip_guidance_layers");
  EXPECT_EQ(lacking_argument("StableDiffusion3Pipeline", skip), std::nullopt);
  EXPECT_EQ(lacking_argument("NoSuchPipeline", skip), std::nullopt);
  try {
    refuse_lacking_arguments("FluxPipeline", skip);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(e.what(), "FluxPipeline has no argument skip_guidance_layers");
  }
}

}  // namespace
}  // namespace tessera::pipelines
