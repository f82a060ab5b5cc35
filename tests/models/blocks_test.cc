#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tessera/checkpoint/model_folder.h"
#include "tessera/models/autoencoder_kl.h"
#include "tessera/models/clip_text.h"
#include "tessera/models/flux_transformer.h"
#include "tessera/models/t5_encoder.h"
#include "tests/testing/golden.h"

// Each module's output against the recorded one, so that a fault is found where it starts.
namespace tessera::models {
namespace {

using testing::Golden;

class Checker {
 public:
  Checker(const Golden& golden, std::string prefix) : golden_(golden), prefix_(std::move(prefix)) {}

  nn::Observer observer() {
    return [this](const std::string& name, const Tensor& tensor) { check(name, tensor); };
  }
  void check(const std::string& name, const Tensor& tensor) {
    std::string full =
        name == "position_bias" ? "block.position_bias.text_encoder_2" : "block." + prefix_ + name;
    const checkpoint::TensorView* reference = golden_.tensors.find(full);
    if (reference == nullptr) return;
    ++checked;
    EXPECT_EQ(to_string(tensor.shape()), to_string(reference->shape)) << full;
    EXPECT_LE(testing::relative_to_max(tensor.to_f32(), testing::to_f32(*reference)), 1e-4) << full;
  }
  int checked = 0;

 private:
  const Golden& golden_;
  std::string prefix_;
};

template <typename Model, typename Config>
struct Component {
  Component(const Golden& golden, Context& context, const std::string& name)
      : folder(checkpoint::ModelFolder::open(golden.model_folder.string())),
        store(folder.source(name)),
        json(folder.config(name)),
        model(Config::from_json(nn::Config(json, name)), store.root()) {
    store.finish();
    store.place(context, context.mesh(), DType::kF32);
  }
  checkpoint::ModelFolder folder;
  nn::ParameterStore store;
  nlohmann::json json;
  Model model;
};

Tensor load(Context& context, const checkpoint::TensorView& t) {
  return context.from_f32(testing::to_f32(t), t.shape, context.mesh());
}

void check_model(const std::filesystem::path& root, const std::string& name) {
  Golden golden = testing::load_golden(root, name, "basic");
  Context context;
  graph::MeshPtr mesh = context.mesh();
  int checked = 0;
  {
    Component<ClipTextModel, ClipTextConfig> clip(golden, context, "text_encoder");
    Checker checker(golden, "text_encoder.");
    const auto& ids = golden.at("text_encoder.input_ids");
    auto out = clip.model.forward(context, mesh, testing::to_i32(ids), ids.shape, checker.observer());
    EXPECT_LE(
        testing::relative_to_max(out.pooled.to_f32(), testing::to_f32(golden.at("pooled_prompt_embeds"))),
        1e-4);
    checked += checker.checked;
  }
  {
    Component<T5Encoder, T5Config> t5(golden, context, "text_encoder_2");
    Checker checker(golden, "text_encoder_2.");
    const auto& ids = golden.at("text_encoder_2.input_ids");
    Tensor out = t5.model.forward(context, mesh, testing::to_i32(ids), ids.shape, checker.observer());
    EXPECT_LE(testing::relative_to_max(out.to_f32(), testing::to_f32(golden.at("prompt_embeds"))), 1e-4);
    checked += checker.checked;
  }
  {
    Component<FluxTransformer, FluxTransformerConfig> flux(golden, context, "transformer");
    Checker checker(golden, "transformer.");
    Tensor text = load(context, golden.at("prompt_embeds"));
    std::int64_t height = golden.json["call"]["height"], width = golden.json["call"]["width"];
    nn::RopeTables rope = flux.model.rope_tables(context, mesh, text.dim(1), height / 16, width / 16);
    checker.check("pos_embed.0", rope.cos);
    checker.check("pos_embed.1", rope.sin);
    Tensor guidance;
    if (flux.model.config().guidance_embeds) guidance = load(context, golden.at("transformer_guidance"));
    Tensor out = flux.model.forward(
        load(context, golden.at("latents_init")), text, load(context, golden.at("pooled_prompt_embeds")),
        load(context, golden.at("transformer_timestep_step0")), guidance, rope, checker.observer());
    EXPECT_LE(testing::relative_to_max(out.to_f32(), testing::to_f32(golden.at("transformer_out_step0"))),
              1e-4);
    EXPECT_GE(checker.checked, 20);
    checked += checker.checked;
  }
  {
    Component<AutoencoderKlDecoder, AutoencoderKlConfig> vae(golden, context, "vae");
    Checker checker(golden, "vae.decoder.");
    Tensor out = vae.model.decode(load(context, golden.at("vae_in")), checker.observer());
    EXPECT_LE(testing::relative_to_max(out.to_f32(), testing::to_f32(golden.at("vae_out"))), 1e-4);
    checked += checker.checked;
  }
  fmt::print("{}: {} module outputs compared\n", name, checked);
}

TEST(Blocks, FluxSchnell) { check_model(testing::compact_data(), "flux1-schnell"); }
TEST(Blocks, FluxDev) { check_model(testing::compact_data(), "flux1-dev"); }
TEST(ReferenceBlocks, FluxSchnell) {
  if (!std::filesystem::exists(testing::reference_data()))
    GTEST_SKIP() << "the larger set is not beside the project";
  check_model(testing::reference_data(), "flux1-schnell");
}
TEST(ReferenceBlocks, FluxDev) {
  if (!std::filesystem::exists(testing::reference_data()))
    GTEST_SKIP() << "the larger set is not beside the project";
  check_model(testing::reference_data(), "flux1-dev");
}

TEST(T5, BucketsAreExactThenLogarithmic) {
  std::vector<std::int32_t> b = t5_relative_buckets(200, 32, 128);
  EXPECT_EQ(b[0], 0);
  EXPECT_EQ(b[7], 16 + 7);     // query 0, key 7
  EXPECT_EQ(b[8], 16 + 8);     // the first logarithmic one
  EXPECT_EQ(b[199], 16 + 15);  // capped
  EXPECT_EQ(b[7 * 200], 7);    // key before the query
  EXPECT_EQ(b[199 * 200], 15);
}

TEST(Clip, PoolsAtTheLargestIdOrTheFirstEnd) {
  std::vector<std::int32_t> ids{5, 9, 2, 9, 1, 2, 2, 7};
  EXPECT_EQ(clip_pooling_positions(ids, {2, 4}, 2), (std::vector<std::int32_t>{1, 3}));
  EXPECT_EQ(clip_pooling_positions(ids, {2, 4}, 7), (std::vector<std::int32_t>{0, 3}));
}

}  // namespace
}  // namespace tessera::models
