#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "tessera/base/error.h"
#include "tessera/checkpoint/model_folder.h"
#include "tessera/models/autoencoder_kl.h"
#include "tessera/models/autoencoder_kl_flux2.h"
#include "tessera/models/clip_text.h"
#include "tessera/models/flux2_transformer.h"
#include "tessera/models/flux_transformer.h"
#include "tessera/models/mistral3.h"
#include "tessera/models/qwen3.h"
#include "tessera/models/sd3_transformer.h"
#include "tessera/models/t5_encoder.h"
#include "tessera/ops/ops.h"
#include "tests/testing/golden.h"

// Each module's output against the recorded one, so that a fault is found where it starts.
namespace tessera::models {
namespace {

using testing::Golden;

constexpr double kTolerance = 1e-4;

// Compares what a model tells its observer with a golden's block.* tensors, and knows which are left.
class Checker {
 public:
  explicit Checker(const Golden& golden) : golden_(golden) {
    for (const checkpoint::TensorView& tensor : golden.tensors.tensors()) {
      if (tensor.name.starts_with("block.")) left_.insert(tensor.name);
    }
  }

  nn::Observer observer(const std::string& component) {
    return
        [this, component](const std::string& name, const Tensor& tensor) { check(component, name, tensor); };
  }
  void check(const std::string& component, const std::string& name, const Tensor& tensor) {
    std::string full = fmt::format("block.{}.{}", component, name);
    if (name == "position_bias") full = "block.position_bias." + component;
    if (name == "post_quant_conv") full = "block.vae.post_quant_conv";
    if (left_.erase(full) == 0) return;
    ++checked_;
    expect_golden(tensor, full);
  }
  void expect_golden(const Tensor& tensor, const std::string& name) const {
    const checkpoint::TensorView& reference = golden_.at(name);
    EXPECT_EQ(to_string(tensor.shape()), to_string(reference.shape)) << golden_.model << " " << name;
    EXPECT_LE(testing::relative_to_max(tensor.to_f32(), testing::to_f32(reference)), kTolerance)
        << golden_.model << " " << name;
  }
  // Fails if a recorded tensor of these components was not compared.
  void expect_complete(std::initializer_list<std::string_view> components) const {
    for (const std::string& name : left_) {
      for (std::string_view component : components) {
        EXPECT_FALSE(name.starts_with(fmt::format("block.{}.", component)) ||
                     name == fmt::format("block.position_bias.{}", component))
            << golden_.model << " " << name << " was not compared";
      }
    }
    fmt::print("{}: {} module outputs compared\n", golden_.model, checked_);
  }

 private:
  const Golden& golden_;
  std::set<std::string> left_;
  int checked_ = 0;
};

template <typename Model, typename Config>
struct Component {
  Component(const Golden& golden, Context& context, std::string component,
            std::initializer_list<std::string_view> ignored = {})
      : name(std::move(component)),
        folder(checkpoint::ModelFolder::open(golden.model_folder.string())),
        store(folder.source(name)),
        json(folder.config(name)),
        model(Config::from_json(nn::Config(json, name)), store.root()) {
    for (std::string_view prefix : ignored) store.root().ignore(prefix);
    store.finish();
    store.place(context, context.mesh(), DType::kF32);
  }
  std::string name;
  checkpoint::ModelFolder folder;
  nn::ParameterStore store;
  nlohmann::json json;
  Model model;
};

using ClipPart = Component<ClipTextModel, ClipTextConfig>;
using T5Part = Component<T5Encoder, T5Config>;
using ClipProjectionPart = Component<ClipTextModelWithProjection, ClipTextConfig>;
using Sd3Part = Component<Sd3Transformer, Sd3TransformerConfig>;
using FluxPart = Component<FluxTransformer, FluxTransformerConfig>;
using VaePart = Component<AutoencoderKlDecoder, AutoencoderKlConfig>;
using Flux2VaePart = Component<AutoencoderKlFlux2Decoder, AutoencoderKlFlux2Config>;
using Flux2Part = Component<Flux2Transformer, Flux2TransformerConfig>;

Tensor load(Context& context, const checkpoint::TensorView& t) {
  return context.from_f32(testing::to_f32(t), t.shape, context.mesh());
}

// What a text encoder makes of the recorded ids. The weights stay with the caller, who reads the result.
template <typename Part>
auto encode(const Part& part, const Golden& golden, Context& context, Checker& checker) {
  const auto& ids = golden.at(part.name + ".input_ids");
  return part.model.forward(context, context.mesh(), testing::to_i32(ids), ids.shape,
                            checker.observer(part.name));
}

void check_vae(const Golden& golden, Context& context, Checker& checker) {
  VaePart vae(golden, context, "vae");
  Tensor out = vae.model.decode(load(context, golden.at("vae_in")), checker.observer("vae.decoder"));
  checker.expect_golden(out, "vae_out");
}

void check_flux_transformer(const Golden& golden, Context& context, Checker& checker) {
  FluxPart flux(golden, context, "transformer");
  Tensor text = load(context, golden.at("prompt_embeds"));
  std::int64_t height = golden.json["call"]["height"], width = golden.json["call"]["width"];
  nn::RopeTables rope = flux.model.rope_tables(context, context.mesh(), text.dim(1), height / 16, width / 16);
  checker.check("transformer", "pos_embed.0", rope.cos);
  checker.check("transformer", "pos_embed.1", rope.sin);
  Tensor guidance;
  if (flux.model.config().guidance_embeds) guidance = load(context, golden.at("transformer_guidance"));
  Tensor out = flux.model.forward(load(context, golden.at("latents_init")), text,
                                  load(context, golden.at("pooled_prompt_embeds")),
                                  load(context, golden.at("transformer_timestep_step0")), guidance, rope,
                                  checker.observer("transformer"));
  checker.expect_golden(out, "transformer_out_step0");
}

void check_flux(const std::filesystem::path& root, const std::string& name) {
  Golden golden = testing::load_golden(root, name, "basic");
  Context context;
  Checker checker(golden);
  ClipPart clip(golden, context, "text_encoder");
  checker.expect_golden(encode(clip, golden, context, checker).pooled, "pooled_prompt_embeds");
  T5Part t5(golden, context, "text_encoder_2");
  checker.expect_golden(encode(t5, golden, context, checker), "prompt_embeds");
  check_flux_transformer(golden, context, checker);
  check_vae(golden, context, checker);
  checker.expect_complete({"text_encoder", "text_encoder_2", "transformer", "vae"});
}

void check_sd3_transformer(const Golden& golden, Context& context, Checker& checker) {
  Sd3Part sd3(golden, context, "transformer");
  auto doubled = [&](const char* of_negative, const char* of_prompt) {
    return ops::concatenate({load(context, golden.at(of_negative)), load(context, golden.at(of_prompt))}, 0);
  };
  Tensor out = sd3.model.forward(
      load(context, golden.at("transformer_in_step0")), doubled("negative_prompt_embeds", "prompt_embeds"),
      doubled("negative_pooled_prompt_embeds", "pooled_prompt_embeds"),
      load(context, golden.at("transformer_timestep_step0")), {}, checker.observer("transformer"));
  checker.expect_golden(out, "transformer_out_step0");
}

// Stable Diffusion 3: two CLIPs, one with the exact gelu, whose hidden states before the last layer stand
// side by side, before T5's, in rows padded with zeros to T5's width.
void check_sd3(const std::filesystem::path& root, const std::string& name) {
  Golden golden = testing::load_golden(root, name, "basic");
  Context context;
  Checker checker(golden);
  ClipProjectionPart clip_l(golden, context, "text_encoder"), clip_g(golden, context, "text_encoder_2");
  T5Part t5(golden, context, "text_encoder_3");
  ClipTextModel::Output l = encode(clip_l, golden, context, checker),
                        g = encode(clip_g, golden, context, checker);
  checker.expect_golden(ops::concatenate({l.pooled, g.pooled}, 1), "pooled_prompt_embeds");
  Tensor clip = ops::concatenate(
      {l.hidden_states.at(l.hidden_states.size() - 2), g.hidden_states.at(g.hidden_states.size() - 2)}, 2);
  Tensor sequence = encode(t5, golden, context, checker);
  clip = ops::pad(clip, {0, 0, 0}, {0, 0, sequence.dim(2) - clip.dim(2)});
  checker.expect_golden(ops::concatenate({clip, sequence}, 1), "prompt_embeds");
  check_sd3_transformer(golden, context, checker);
  check_vae(golden, context, checker);
  checker.expect_complete({"text_encoder", "text_encoder_2", "text_encoder_3", "transformer", "vae"});
}

// What a language model makes of the recorded ids.
template <typename Model, typename Config>
void check_decoder_model(const Golden& golden, Context& context, Checker& checker, std::vector<int> states) {
  Component<Model, Config> part(golden, context, "text_encoder");
  const auto& ids = golden.at("text_encoder.input_ids");
  std::vector<Tensor> out = part.model.forward(context, context.mesh(), testing::to_i32(ids),
                                               testing::to_i32(golden.at("text_encoder.attention_mask")),
                                               ids.shape, states, checker.observer("text_encoder"));
  checker.expect_golden(ops::concatenate(out, 2), "prompt_embeds");
}

void check_flux2_transformer(const Golden& golden, Context& context, Checker& checker) {
  Flux2Part flux(golden, context, "transformer");
  Tensor text = load(context, golden.at("prompt_embeds"));
  std::int64_t height = golden.json["call"]["height"], width = golden.json["call"]["width"];
  nn::RopeTables rope = flux.model.rope_tables(context, context.mesh(), text.dim(1), height / 16, width / 16);
  // Recorded for the picture's tokens.
  std::int64_t all = rope.cos.dim(0);
  checker.check("transformer", "pos_embed.0", ops::slice(rope.cos, 0, text.dim(1), all));
  checker.check("transformer", "pos_embed.1", ops::slice(rope.sin, 0, text.dim(1), all));
  Tensor guidance;
  if (flux.model.config().guidance_embeds) guidance = load(context, golden.at("transformer_guidance"));
  Tensor out = flux.model.forward(load(context, golden.at("latents_init")), text,
                                  load(context, golden.at("transformer_timestep_step0")), guidance, rope,
                                  checker.observer("transformer"));
  checker.expect_golden(out, "transformer_out_step0");
}

void check_flux2_vae(const Golden& golden, Context& context, Checker& checker) {
  Flux2VaePart vae(golden, context, "vae");
  std::int64_t height = golden.json["call"]["height"], width = golden.json["call"]["width"];
  int steps = golden.json["call"]["num_inference_steps"];
  Tensor last = load(context, golden.at(fmt::format("latents_step{}", steps - 1)));
  checker.expect_golden(vae.model.unpack(last, height / 16, width / 16), "vae_in");
  Tensor out = vae.model.decode(load(context, golden.at("vae_in")), checker.observer("vae.decoder"));
  checker.expect_golden(out, "vae_out");
}

void check_flux2(const std::filesystem::path& root, const std::string& name) {
  Golden golden = testing::load_golden(root, name, "basic");
  Context context;
  Checker checker(golden);
  if (name == "flux2-dev") {
    check_decoder_model<Mistral3TextModel, Mistral3Config>(golden, context, checker, {10, 20, 30});
  } else {
    check_decoder_model<Qwen3TextModel, Qwen3Config>(golden, context, checker, {9, 18, 27});
  }
  check_flux2_transformer(golden, context, checker);
  check_flux2_vae(golden, context, checker);
  checker.expect_complete({"text_encoder", "transformer", "vae"});
}

void check_all(const std::filesystem::path& root) {
  for (const char* name : {"flux1-schnell", "flux1-dev"}) check_flux(root, name);
  for (const char* name : {"sd35-medium", "sd35-large"}) check_sd3(root, name);
  for (const char* name : {"flux2-dev", "flux2-klein"}) check_flux2(root, name);
}

TEST(Blocks, AreDiffusers) { check_all(testing::compact_data()); }
TEST(ReferenceModels, AreDiffusers) {
  if (!std::filesystem::exists(testing::reference_data()))
    GTEST_SKIP() << "the larger reference set is not beside the project";
  check_all(testing::reference_data());
}

checkpoint::TensorSource renamed(const checkpoint::TensorSource& source,
                                 const std::function<std::string(const std::string&)>& name) {
  std::vector<checkpoint::TensorView> tensors = source.tensors();
  for (checkpoint::TensorView& tensor : tensors) tensor.name = name(tensor.name);
  return {source.name(), std::move(tensors)};
}

TEST(T5, ReadsTheEmbeddingUnderEitherName) {
  Golden golden = testing::load_golden(testing::compact_data(), "flux1-schnell", "basic");
  auto folder = checkpoint::ModelFolder::open(golden.model_folder.string());
  nlohmann::json json = folder.config("text_encoder_2");
  Context context;
  nn::ParameterStore store(renamed(folder.source("text_encoder_2"), [](const std::string& name) {
    return name == "shared.weight" ? "encoder.embed_tokens.weight" : name;
  }));
  T5Encoder model(T5Config::from_json(nn::Config(json, "T5")), store.root());
  store.finish();
  store.place(context, context.mesh(), DType::kF32);
  const auto& ids = golden.at("text_encoder_2.input_ids");
  Checker checker(golden);
  checker.expect_golden(model.forward(context, context.mesh(), testing::to_i32(ids), ids.shape),
                        "prompt_embeds");
}

TEST(Clip, ReadsNamesWithoutTheirPrefix) {
  Golden golden = testing::load_golden(testing::compact_data(), "flux1-schnell", "basic");
  auto folder = checkpoint::ModelFolder::open(golden.model_folder.string());
  nlohmann::json json = folder.config("text_encoder");
  Context context;
  nn::ParameterStore store(renamed(folder.source("text_encoder"), [](const std::string& name) {
    constexpr std::string_view kPrefix = "text_model.";
    EXPECT_TRUE(name.starts_with(kPrefix)) << name;
    return name.substr(kPrefix.size());
  }));
  ClipTextModel model(ClipTextConfig::from_json(nn::Config(json, "CLIP")), store.root());
  store.finish();
  store.place(context, context.mesh(), DType::kF32);
  const auto& ids = golden.at("text_encoder.input_ids");
  Checker checker(golden);
  checker.expect_golden(model.forward(context, context.mesh(), testing::to_i32(ids), ids.shape).pooled,
                        "pooled_prompt_embeds");
}

// A damaged number of layers is refused before that many are built.
TEST(Configs, ALayerCountHasABound) {
  auto refused = [](const char* key, auto from_json) {
    for (const nlohmann::json& value : {nlohmann::json(1025), nlohmann::json(1 << 24), nlohmann::json(0),
                                        nlohmann::json(-1), nlohmann::json(2.5), nlohmann::json("2")}) {
      nlohmann::json json{{key, value}};
      try {
        from_json(nn::Config(json, "part"));
        ADD_FAILURE() << key << " " << value;
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::kDataLoss);
        EXPECT_NE(std::string(e.what()).find(fmt::format("part: '{}' is {}", key, value.dump())),
                  std::string::npos)
            << e.what();
      }
    }
  };
  refused("num_hidden_layers", ClipTextConfig::from_json);
  refused("num_layers", T5Config::from_json);
  refused("num_layers", FluxTransformerConfig::from_json);
  refused("num_single_layers", FluxTransformerConfig::from_json);
  refused("num_layers", Flux2TransformerConfig::from_json);
  refused("num_single_layers", Flux2TransformerConfig::from_json);
  refused("num_layers", Sd3TransformerConfig::from_json);
  refused("layers_per_block", AutoencoderKlConfig::from_json);
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
