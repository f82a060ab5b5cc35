#include "tessera/pipelines/stable_diffusion_3_plan.h"

#include <gtest/gtest.h>

#include <functional>

#include "tessera/base/error.h"
#include "tests/testing/golden.h"

// What a call of Stable Diffusion 3 comes to, and what is refused, without any weights.
namespace tessera::pipelines {
namespace {

constexpr Sd3Limits kLimits{.vae_scale_factor = 8,
                            .patch_size = 2,
                            .sample_size = 16,
                            .pos_embed_max_size = 24,
                            .num_layers = 4,
                            .clip_hidden_states = 4};

Arguments call(const std::function<void(Arguments&)>& change = [](Arguments&) {}) {
  Arguments a{.prompt = {"x", "y"}, .seeds = {1}};
  change(a);
  return a;
}

Sd3Plan plan(const Arguments& arguments) {
  static const auto kFolder =
      checkpoint::ModelFolder::open((testing::compact_data() / "models" / "sd35-medium").string());
  return sd3_plan(arguments, kFolder, kLimits);
}

TEST(Sd3Plan, DefaultsAreDiffusers) {
  Sd3Plan p = plan(call());
  EXPECT_EQ(p.height, 128);
  EXPECT_EQ(p.width, 128);
  EXPECT_EQ(p.latent_height, 16);
  EXPECT_EQ(p.steps, 28);
  EXPECT_EQ(p.guidance_scale, 7.0);
  EXPECT_TRUE(p.guided);
  EXPECT_EQ(p.max_sequence_length, 256);
  EXPECT_EQ(p.clip_skip, 0);
  EXPECT_EQ(p.images(), 2);
  EXPECT_FALSE(p.skip_layers.applies(3, 28));
  for (const auto& texts : p.prompt) EXPECT_EQ(texts, (std::vector<std::string>{"x", "y"}));
  for (const auto& texts : p.negative_prompt) EXPECT_EQ(texts, (std::vector<std::string>{"", ""}));
}

TEST(Sd3Plan, TextsStandInForThoseNotGiven) {
  Sd3Plan p = plan(call([](Arguments& a) {
    a.prompt_3 = {{"long"}};  // one for all
    a.negative_prompt = {{"n", "m"}};
    a.negative_prompt_2 = {{"second", "third"}};
  }));
  EXPECT_EQ(p.prompt[1], (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(p.prompt[2], (std::vector<std::string>{"long", "long"}));
  EXPECT_EQ(p.negative_prompt[0], (std::vector<std::string>{"n", "m"}));
  EXPECT_EQ(p.negative_prompt[1], (std::vector<std::string>{"second", "third"}));
  EXPECT_EQ(p.negative_prompt[2], (std::vector<std::string>{"n", "m"}));
}

TEST(Sd3Plan, NoGuidanceUpToOne) {
  EXPECT_FALSE(plan(call([](Arguments& a) { a.guidance_scale = 1; })).guided);
  EXPECT_TRUE(plan(call([](Arguments& a) { a.guidance_scale = 1.01; })).guided);
  // Skip-layer guidance is a part of it.
  Sd3Plan p = plan(call([](Arguments& a) {
    a.guidance_scale = 1;
    a.skip_guidance_layers = {{1}};
  }));
  EXPECT_TRUE(p.skip_layers.layers.empty());
}

TEST(Sd3Plan, SkipLayersApplyStrictlyBetweenStartAndStop) {
  SkipLayerGuidance skip{.layers = {1}, .scale = 2.8, .start = 0.1, .stop = 0.4};
  EXPECT_FALSE(skip.applies(0, 10));
  EXPECT_FALSE(skip.applies(1, 10));
  EXPECT_TRUE(skip.applies(2, 10));
  EXPECT_TRUE(skip.applies(3, 10));
  EXPECT_FALSE(skip.applies(4, 10));
}

TEST(Sd3Plan, WhatDoesNotFitIsRefusedByName) {
  auto refused = [](const std::string& message, const std::function<void(Arguments&)>& change) {
    try {
      plan(call(change));
      ADD_FAILURE() << "accepted: " << message;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument) << e.what();
      EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << e.what();
    }
  };
  refused("StableDiffusion3Pipeline has no argument true_cfg_scale",
          [](Arguments& a) { a.true_cfg_scale = 2; });
  refused("prompt: none", [](Arguments& a) { a.prompt = {}; });
  refused("seeds: none", [](Arguments& a) { a.seeds = {}; });
  refused("3 seeds for 2 image(s)", [](Arguments& a) { a.seeds = {1, 2, 3}; });
  refused("num_images_per_prompt is 0", [](Arguments& a) { a.num_images_per_prompt = 0; });
  refused("negative_prompt: 3 texts for 2 prompt(s)", [](Arguments& a) {
    a.negative_prompt = {{"a", "b", "c"}};
  });
  refused("negative_prompt_2: 0 texts for 2",
          [](Arguments& a) { a.negative_prompt_2 = {std::vector<std::string>{}}; });
  refused("negative_prompt_3: 3 texts", [](Arguments& a) { a.negative_prompt_3 = {{"a", "b", "c"}}; });
  refused("prompt_2: 3 texts", [](Arguments& a) { a.prompt_2 = {{"a", "b", "c"}}; });
  refused("prompt_3: 3 texts", [](Arguments& a) { a.prompt_3 = {{"a", "b", "c"}}; });
  refused("128 x 100 (width x height) is not divisible by 16; 128 x 96 is",
          [](Arguments& a) { a.height = 100; });
  refused("8 x 128 (width x height) is not divisible by 16; 16 x 128 is", [](Arguments& a) { a.width = 8; });
  refused("sides of up to 384", [](Arguments& a) { a.width = 400; });
  refused("height is 0", [](Arguments& a) { a.height = 0; });
  refused("num_inference_steps is 0", [](Arguments& a) { a.num_inference_steps = 0; });
  refused("sigmas: 1 were given for 2 steps", [](Arguments& a) {
    a.num_inference_steps = 2;
    a.sigmas = {{1.0}};
  });
  refused("max_sequence_length is 513", [](Arguments& a) { a.max_sequence_length = 513; });
  refused("guidance_scale is nan", [](Arguments& a) { a.guidance_scale = NAN; });
  refused("clip_skip is 3; it must be from 0 to 2", [](Arguments& a) { a.clip_skip = 3; });
  refused("clip_skip is -1", [](Arguments& a) { a.clip_skip = -1; });
  refused("there is no block 4; the transformer has blocks 0 to 3", [](Arguments& a) {
    a.skip_guidance_layers = {{1, 4}};
  });
  refused("there is no block -1", [](Arguments& a) { a.skip_guidance_layers = {{-1}}; });
  refused("skip_layer_guidance_start 0.5 is after skip_layer_guidance_stop 0.2", [](Arguments& a) {
    a.skip_guidance_layers = {{1}};
    a.skip_layer_guidance_start = 0.5;
  });
  refused("skip_layer_guidance_scale was given without skip_guidance_layers",
          [](Arguments& a) { a.skip_layer_guidance_scale = 2; });
  refused("skip_layer_guidance_stop is inf", [](Arguments& a) {
    a.skip_guidance_layers = {{1}};
    a.skip_layer_guidance_stop = INFINITY;
  });
}

}  // namespace
}  // namespace tessera::pipelines
