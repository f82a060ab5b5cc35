#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tessera/models/flux2_transformer.h"
#include "tessera/models/mistral3.h"
#include "tessera/models/qwen3.h"

// The published shapes have the published numbers of parameters; no weights are needed to count them.
namespace tessera::models {
namespace {

using nlohmann::json;

template <typename Model, typename Config>
std::int64_t parameters(const json& config) {
  nn::ParameterStore store(checkpoint::TensorSource("none", {}));
  Model model(Config::from_json(nn::Config(config, "config")), store.root());
  return store.bytes(DType::kU8);
}

json qwen3(int hidden_size, int intermediate_size) {
  return {{"vocab_size", 151936},    {"hidden_size", hidden_size}, {"intermediate_size", intermediate_size},
          {"num_hidden_layers", 36}, {"num_attention_heads", 32},  {"num_key_value_heads", 8},
          {"head_dim", 128}};
}

TEST(PublishedSizes, Flux2Transformers) {
  auto count = parameters<Flux2Transformer, Flux2TransformerConfig>;
  EXPECT_EQ(count(json::object()), 32223281152);  // dev: the class's own defaults
  EXPECT_EQ(count({{"num_attention_heads", 24},
                   {"num_layers", 5},
                   {"num_single_layers", 20},
                   {"joint_attention_dim", 7680},
                   {"guidance_embeds", false}}),
            3875544576);  // klein 4B
  EXPECT_EQ(count({{"num_attention_heads", 32},
                   {"num_layers", 8},
                   {"num_single_layers", 24},
                   {"joint_attention_dim", 12288},
                   {"guidance_embeds", false}}),
            9078581248);  // klein 9B
}

TEST(PublishedSizes, Flux2TextEncoders) {
  json mistral{{"vocab_size", 131072},    {"hidden_size", 5120},       {"intermediate_size", 32768},
               {"num_hidden_layers", 40}, {"num_attention_heads", 32}, {"num_key_value_heads", 8},
               {"head_dim", 128},         {"rope_theta", 1e9}};
  EXPECT_EQ((parameters<Mistral3TextModel, Mistral3Config>({{"text_config", mistral}})), 22901314560);
  EXPECT_EQ((parameters<Qwen3TextModel, Qwen3Config>(qwen3(2560, 9728))), 4022468096);
  EXPECT_EQ((parameters<Qwen3TextModel, Qwen3Config>(qwen3(4096, 12288))), 7568405504);
}

}  // namespace
}  // namespace tessera::models
