#include <gtest/gtest.h>

#include <array>
#include <string_view>

#include "tessera/plan/components.h"

namespace tessera::plan {
namespace {

struct Size {
  const char *model, *component;
  std::int64_t bytes;  // in bf16, of everything that Diffusers' and Transformers' classes build
};
constexpr std::array kSizes{Size{"flux.1-schnell", "transformer", 23782357120},
                            Size{"flux.1-schnell", "vae", 167639366},
                            Size{"flux.1-schnell", "text_encoder", 246120960},
                            Size{"flux.1-schnell", "text_encoder_2", 9524621312},
                            Size{"flux.1-dev", "transformer", 23802816640},
                            Size{"sd3.5-medium", "transformer", 4939327872},
                            Size{"sd3.5-medium", "vae", 167639366},
                            Size{"sd3.5-medium", "text_encoder", 247300608},
                            Size{"sd3.5-medium", "text_encoder_2", 1389319680},
                            Size{"sd3.5-medium", "text_encoder_3", 9524621312},
                            Size{"sd3.5-large", "transformer", 16292561536},
                            Size{"flux.2-dev", "transformer", 64446562304},
                            Size{"flux.2-dev", "vae", 168092230},
                            Size{"flux.2-dev", "text_encoder", 45802629120},
                            Size{"flux.2-klein-4b", "transformer", 7751089152},
                            Size{"flux.2-klein-4b", "text_encoder", 8044936192},
                            Size{"flux.2-klein-9b", "transformer", 18157162496},
                            Size{"flux.2-klein-9b", "text_encoder", 15136811008}};

const ModelFacts::Component& component_of(const ModelFacts& model, std::string_view name) {
  for (const ModelFacts::Component& c : model.components) {
    if (c.name == name) return c;
  }
  throw std::out_of_range(std::string(name));
}

// What is in those sizes and not loaded: the encoders of the autoencoders, by hand.
std::int64_t encoder_bytes(const ModelFacts::Component& c) {
  if (c.class_name == "AutoencoderKL") return 2 * 34274208;
  // With quant_conv; less the running statistics of the normalisation, which are loaded and no parameters.
  if (c.class_name == "AutoencoderKLFlux2") return 2 * (34421696 + 4160 - 2 * 128);
  return 0;
}

TEST(Weights, AreThoseOfThePublishedModelsToTheByte) {
  for (const Size& size : kSizes) {
    ModelFacts model = *published(size.model);
    const ModelFacts::Component& c = component_of(model, size.component);
    ComponentWeights w = weights_of(model, c, {}, 1);
    EXPECT_EQ(w.bytes + w.not_loaded_bytes + encoder_bytes(c), size.bytes) << size.model << " " << c.name;
    EXPECT_TRUE(w.faults.empty()) << size.model << " " << c.name;
  }
}

TEST(Weights, OfALanguageModelStopAtTheLastLayerThatIsRead) {
  ModelFacts model = *published("flux.2-dev");
  ComponentWeights w = weights_of(model, component_of(model, "text_encoder"), {}, 1);
  constexpr std::int64_t kHidden = 5120, kMlp = 32768, kHeads = 32 * 128, kKeyHeads = 8 * 128;
  constexpr std::int64_t kLayer = 2 * kHidden * (kHeads + kKeyHeads) + 3 * kHidden * kMlp + 2 * kHidden;
  EXPECT_EQ(w.not_loaded_bytes, 2 * (10 * kLayer + kHidden));
}

TEST(Weights, AreSharedOut) {
  ModelFacts model = *published("flux.2-dev");
  const ModelFacts::Component& transformer = component_of(model, "transformer");
  std::int64_t whole = weights_of(model, transformer, {}, 1).bytes;
  std::int64_t of_2 = weights_of(model, transformer, {}, 2).bytes;
  std::int64_t of_8 = weights_of(model, transformer, {}, 8).bytes;
  // shared / N + replicated
  EXPECT_EQ((whole - of_2) * 7, (whole - of_8) * 4);
  EXPECT_LT(of_8, whole / 6);
  Request request;
  request.replicate = {"transformer"};
  EXPECT_EQ(weights_of(model, transformer, request, 8).bytes, whole);
  EXPECT_EQ(weights_of(model, component_of(model, "vae"), {}, 8).bytes,
            weights_of(model, component_of(model, "vae"), {}, 1).bytes);
}

TEST(Weights, SayWhatRanksCannotShareOut) {
  ModelFacts model = *published("flux.1-schnell");
  EXPECT_FALSE(weights_of(model, component_of(model, "text_encoder"), {}, 8).faults.empty());
  EXPECT_TRUE(weights_of(model, component_of(model, "transformer"), {}, 8).faults.empty());
  EXPECT_TRUE(weights_of(model, component_of(model, "vae"), {}, 7).faults.empty());
}

}  // namespace
}  // namespace tessera::plan
