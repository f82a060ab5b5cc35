#include <set>

#include "tessera/base/error.h"
#include "tests/testing/pipeline_parity.h"

// FLUX.2 against what Diffusers recorded, every tensor of every case.
namespace tessera::pipelines {
namespace {

using testing::check_parity;
using testing::compact_data;
using testing::reference_data;

TEST(Flux2Parity, DevInF32) { check_parity(compact_data(), "flux2-dev", DType::kF32); }
TEST(Flux2Parity, KleinInF32) { check_parity(compact_data(), "flux2-klein", DType::kF32); }
TEST(Flux2Parity, DevInBf16) { check_parity(compact_data(), "flux2-dev", DType::kBF16); }
TEST(Flux2Parity, KleinInBf16) { check_parity(compact_data(), "flux2-klein", DType::kBF16); }

class ReferenceFlux2Parity : public testing::WithReferenceData {};

TEST_F(ReferenceFlux2Parity, DevInF32) { check_parity(reference_data(), "flux2-dev", DType::kF32); }
TEST_F(ReferenceFlux2Parity, KleinInF32) { check_parity(reference_data(), "flux2-klein", DType::kF32); }
TEST_F(ReferenceFlux2Parity, DevInBf16) { check_parity(reference_data(), "flux2-dev", DType::kBF16); }
TEST_F(ReferenceFlux2Parity, KleinInBf16) { check_parity(reference_data(), "flux2-klein", DType::kBF16); }

checkpoint::ModelFolder compact(const char* model) {
  return checkpoint::ModelFolder::open((compact_data() / "models" / model).string());
}

Arguments small() {
  Arguments a;
  a.prompt = {"a red apple"};
  a.height = a.width = 32;
  a.num_inference_steps = 2;
  a.max_sequence_length = 64;
  a.seeds = {1};
  return a;
}

std::string refusal(const TextToImage& pipeline, const Arguments& arguments) {
  try {
    pipeline.generate(arguments);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

// Layers of the text encoder that no call has asked for are not on the device; those that one does ask for
// come when it does, and the picture is that of a fresh pipeline.
TEST(Flux2TextEncoder, HasOnlyTheLayersThatAreRead) {
  Context context;
  auto pipeline = load_pipeline(compact("flux2-dev"), context, {.device = DeviceName{}});
  nlohmann::json text = compact("flux2-dev").config("text_encoder")["text_config"];
  auto get = [&](const char* key) { return text[key].get<std::int64_t>(); };
  std::int64_t hidden = get("hidden_size"), heads = get("head_dim") * get("num_attention_heads"),
               kv = get("head_dim") * get("num_key_value_heads");
  std::int64_t layer =
      4 * (2 * hidden * heads + 2 * hidden * kv + 3 * hidden * get("intermediate_size") + 2 * hidden);
  Arguments low = small();
  std::int64_t start = pipeline->weight_bytes();
  std::vector<std::uint8_t> default_layers = pipeline->generate(low).images[0].pixels;
  EXPECT_EQ(pipeline->weight_bytes(), start);
  Arguments high = small();
  high.text_encoder_out_layers = {10, 20, -1};
  std::vector<std::uint8_t> last_layer = pipeline->generate(high).images[0].pixels;
  EXPECT_EQ(pipeline->weight_bytes(),
            start + (get("num_hidden_layers") - 30) * layer + 4 * hidden);  // and the final norm
  EXPECT_NE(last_layer, default_layers);
  EXPECT_EQ(pipeline->generate(low).images[0].pixels, default_layers);
  high.text_encoder_out_layers = {10, 20, static_cast<int>(get("num_hidden_layers"))};
  EXPECT_EQ(
      load_pipeline(compact("flux2-dev"), context, {.device = DeviceName{}})->generate(high).images[0].pixels,
      last_layer);
}

TEST(Flux2Calls, MoveNothingInTheLoopAndCompileOnce) {
  for (const char* model : {"flux2-dev", "flux2-klein"}) {
    Context context;
    auto pipeline = load_pipeline(compact(model), context);
    EXPECT_EQ(pipeline->generate(small()).host_transfers_in_loop, 0) << model;
    std::int64_t compiles = context.statistics().compiles;
    Arguments other = small();
    other.prompt = {"another picture, with more words"};
    other.num_inference_steps = 3;
    other.guidance_scale = 1.5;
    other.seeds = {2};
    pipeline->generate(other);
    EXPECT_EQ(context.statistics().compiles, compiles) << model;
  }
}

TEST(Flux2Calls, ADistilledModelIgnoresGuidanceAndTheOtherDoesNot) {
  Context context;
  auto pixels = [&](const TextToImage& pipeline, double scale) {
    Arguments a = small();
    a.guidance_scale = scale;
    return pipeline.generate(a).images[0].pixels;
  };
  auto klein = load_pipeline(compact("flux2-klein"), context),
       dev = load_pipeline(compact("flux2-dev"), context);
  EXPECT_EQ(pixels(*klein, 1.0), pixels(*klein, 4.0));
  EXPECT_NE(pixels(*dev, 1.0), pixels(*dev, 4.0));
}

TEST(Flux2Calls, RefuseWhatDoesNotFit) {
  Context context;
  auto dev = load_pipeline(compact("flux2-dev"), context),
       klein = load_pipeline(compact("flux2-klein"), context);
  auto with = [](auto change) {
    Arguments a = small();
    change(a);
    return a;
  };
  expect_part(refusal(*dev, with([](Arguments& a) {
                a.text_encoder_out_layers = {1, 2};
              })),
              "text_encoder_out_layers: 2 layers of 24 features; the transformer takes 72");
  expect_part(refusal(*dev, with([](Arguments& a) {
                a.text_encoder_out_layers = {1, 2, 32};
              })),
              "those from 0 to 31");
  expect_part(refusal(*klein, with([](Arguments& a) {
                a.text_encoder_out_layers = {1, 2, -30};
              })),
              "those from 0 to 28");
  expect_part(refusal(*dev, with([](Arguments& a) { a.height = 8; })), "height");
  for (const auto& pipeline : {std::cref(*dev), std::cref(*klein)}) {
    const TextToImage& p = pipeline.get();
    std::string name(p.class_name());
    expect_part(refusal(p, with([](Arguments& a) { a.negative_prompt = {"x"}; })),
                name + " has no argument negative_prompt");
    expect_part(refusal(p, with([](Arguments& a) { a.true_cfg_scale = 2; })),
                name + " has no argument true_cfg_scale");
    expect_part(refusal(p, with([](Arguments& a) {
                          a.latents = Latents{{1, 4, 128}, std::vector<float>(512)};
                        })),
                "[1, 128, 2, 2] are wanted");
  }
}

}  // namespace
}  // namespace tessera::pipelines
