#include "tessera/plan/published.h"

#include <array>

namespace tessera::plan {
namespace {

// What the published config.json files say, less what no model here reads. The two autoencoders of 16
// channels differ in numbers that change no shape.
constexpr const char* kT5Xxl =
    R"({"d_ff": 10240, "d_kv": 64, "d_model": 4096, "dense_act_fn": "gelu_new", "eos_token_id": 1,
"feed_forward_proj": "gated-gelu", "is_gated_act": true, "layer_norm_epsilon": 1e-06,
"model_type": "t5", "num_heads": 64, "num_layers": 24, "relative_attention_max_distance": 128,
"relative_attention_num_buckets": 32, "tie_word_embeddings": true, "vocab_size": 32128})";
constexpr const char* kClipL =
    R"({"eos_token_id": 49407, "hidden_act": "quick_gelu", "hidden_size": 768, "intermediate_size": 3072,
"layer_norm_eps": 1e-05, "max_position_embeddings": 77, "model_type": "clip_text_model",
"num_attention_heads": 12, "num_hidden_layers": 12, "projection_dim": 768, "vocab_size": 49408})";
constexpr const char* kClipG =
    R"({"eos_token_id": 49407, "hidden_act": "gelu", "hidden_size": 1280, "intermediate_size": 5120,
"layer_norm_eps": 1e-05, "max_position_embeddings": 77, "model_type": "clip_text_model",
"num_attention_heads": 20, "num_hidden_layers": 32, "projection_dim": 1280, "vocab_size": 49408})";
constexpr const char* kVae16 =
    R"({"block_out_channels": [128, 256, 512, 512], "in_channels": 3, "latent_channels": 16,
"layers_per_block": 2, "mid_block_add_attention": true, "norm_num_groups": 32, "out_channels": 3,
"scaling_factor": 0.3611, "shift_factor": 0.1159, "use_post_quant_conv": false,
"use_quant_conv": false})";
constexpr const char* kVae32 =
    R"({"batch_norm_eps": 0.0001, "block_out_channels": [128, 256, 512, 512], "in_channels": 3,
"latent_channels": 32, "layers_per_block": 2, "mid_block_add_attention": true,
"norm_num_groups": 32, "out_channels": 3, "patch_size": [2, 2], "use_post_quant_conv": true,
"use_quant_conv": true})";
constexpr const char* kMistral3 =
    R"({"model_type": "mistral3", "text_config": {"eos_token_id": 2, "head_dim": 128, "hidden_act": "silu",
"hidden_size": 5120, "intermediate_size": 32768, "max_position_embeddings": 131072,
"model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 40,
"num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_parameters": {"rope_theta": 1000000000.0,
"rope_type": "default"}, "tie_word_embeddings": false, "vocab_size": 131072},
"tie_word_embeddings": true})";
constexpr const char* kQwen3Of4B =
    R"({"attention_bias": false, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2560,
"intermediate_size": 9728, "max_position_embeddings": 40960, "model_type": "qwen3",
"num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
"rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}, "tie_word_embeddings": true,
"use_sliding_window": false, "vocab_size": 151936})";
constexpr const char* kQwen3Of8B =
    R"({"attention_bias": false, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
"intermediate_size": 12288, "max_position_embeddings": 40960, "model_type": "qwen3",
"num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
"rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}, "tie_word_embeddings": false,
"use_sliding_window": false, "vocab_size": 151936})";
constexpr const char* kFlux1Schnell =
    R"({"attention_head_dim": 128, "axes_dims_rope": [16, 56, 56], "guidance_embeds": false,
"in_channels": 64, "joint_attention_dim": 4096, "num_attention_heads": 24, "num_layers": 19,
"num_single_layers": 38, "patch_size": 1, "pooled_projection_dim": 768})";
constexpr const char* kFlux1Dev =
    R"({"attention_head_dim": 128, "axes_dims_rope": [16, 56, 56], "guidance_embeds": true,
"in_channels": 64, "joint_attention_dim": 4096, "num_attention_heads": 24, "num_layers": 19,
"num_single_layers": 38, "patch_size": 1, "pooled_projection_dim": 768})";
constexpr const char* kSd35Medium =
    R"({"attention_head_dim": 64, "caption_projection_dim": 1536, "dual_attention_layers": [0, 1, 2, 3, 4,
5, 6, 7, 8, 9, 10, 11, 12], "in_channels": 16, "joint_attention_dim": 4096,
"num_attention_heads": 24, "num_layers": 24, "out_channels": 16, "patch_size": 2,
"pooled_projection_dim": 2048, "pos_embed_max_size": 384, "qk_norm": "rms_norm", "sample_size": 128})";
constexpr const char* kSd35Large =
    R"({"attention_head_dim": 64, "caption_projection_dim": 2432, "dual_attention_layers": [],
"in_channels": 16, "joint_attention_dim": 4096, "num_attention_heads": 38, "num_layers": 38,
"out_channels": 16, "patch_size": 2, "pooled_projection_dim": 2048, "pos_embed_max_size": 192,
"qk_norm": "rms_norm", "sample_size": 128})";
constexpr const char* kFlux2Dev =
    R"({"attention_head_dim": 128, "axes_dims_rope": [32, 32, 32, 32], "eps": 1e-06,
"guidance_embeds": true, "in_channels": 128, "joint_attention_dim": 15360, "mlp_ratio": 3.0,
"num_attention_heads": 48, "num_layers": 8, "num_single_layers": 48, "patch_size": 1,
"rope_theta": 2000, "timestep_guidance_channels": 256})";
constexpr const char* kFlux2Klein4B =
    R"({"attention_head_dim": 128, "axes_dims_rope": [32, 32, 32, 32], "eps": 1e-06,
"guidance_embeds": false, "in_channels": 128, "joint_attention_dim": 7680, "mlp_ratio": 3.0,
"num_attention_heads": 24, "num_layers": 5, "num_single_layers": 20, "patch_size": 1,
"rope_theta": 2000, "timestep_guidance_channels": 256})";
constexpr const char* kFlux2Klein9B =
    R"({"attention_head_dim": 128, "axes_dims_rope": [32, 32, 32, 32], "eps": 1e-06,
"guidance_embeds": false, "in_channels": 128, "joint_attention_dim": 12288, "mlp_ratio": 3.0,
"num_attention_heads": 32, "num_layers": 8, "num_single_layers": 24, "patch_size": 1,
"rope_theta": 2000, "timestep_guidance_channels": 256})";

struct Entry {
  const char* name;
  const char* pipeline;
  std::int64_t steps;
  std::vector<std::array<const char*, 3>> components;  // name, class, config
};

const std::vector<Entry>& entries() {
  static const std::array<const char*, 3> t5_2{"text_encoder_2", "T5EncoderModel", kT5Xxl},
      t5_3{"text_encoder_3", "T5EncoderModel", kT5Xxl}, clip{"text_encoder", "CLIPTextModel", kClipL},
      clip_l{"text_encoder", "CLIPTextModelWithProjection", kClipL},
      clip_g{"text_encoder_2", "CLIPTextModelWithProjection", kClipG}, vae{"vae", "AutoencoderKL", kVae16},
      vae_32{"vae", "AutoencoderKLFlux2", kVae32};
  auto transformer = [](const char* kind, const char* config) {
    return std::array<const char*, 3>{"transformer", kind, config};
  };
  constexpr const char *kFlux = "FluxTransformer2DModel", *kSd3 = "SD3Transformer2DModel",
                       *kFlux2 = "Flux2Transformer2DModel", *kQwen = "Qwen3ForCausalLM";
  static const std::vector<Entry> all{
      {"flux.1-schnell", "FluxPipeline", 4, {clip, t5_2, transformer(kFlux, kFlux1Schnell), vae}},
      {"flux.1-dev", "FluxPipeline", 28, {clip, t5_2, transformer(kFlux, kFlux1Dev), vae}},
      {"sd3.5-medium",
       "StableDiffusion3Pipeline",
       40,
       {clip_l, clip_g, t5_3, transformer(kSd3, kSd35Medium), vae}},
      {"sd3.5-large",
       "StableDiffusion3Pipeline",
       28,
       {clip_l, clip_g, t5_3, transformer(kSd3, kSd35Large), vae}},
      {"flux.2-dev",
       "Flux2Pipeline",
       28,
       {{"text_encoder", "Mistral3ForConditionalGeneration", kMistral3},
        transformer(kFlux2, kFlux2Dev),
        vae_32}},
      {"flux.2-klein-4b",
       "Flux2KleinPipeline",
       4,
       {{"text_encoder", kQwen, kQwen3Of4B}, transformer(kFlux2, kFlux2Klein4B), vae_32}},
      {"flux.2-klein-9b",
       "Flux2KleinPipeline",
       4,
       {{"text_encoder", kQwen, kQwen3Of8B}, transformer(kFlux2, kFlux2Klein9B), vae_32}},
  };
  return all;
}

}  // namespace

std::vector<std::string> published_names() {
  std::vector<std::string> out;
  for (const Entry& e : entries()) out.emplace_back(e.name);
  return out;
}

std::optional<ModelFacts> published(std::string_view name) {
  for (const Entry& e : entries()) {
    if (name != e.name) continue;
    ModelFacts out{e.name, e.pipeline, e.steps, {}};
    for (const auto& [component, kind, config] : e.components) {
      out.components.push_back({component, kind, nlohmann::json::parse(config)});
    }
    return out;
  }
  return std::nullopt;
}

ModelFacts facts_of(const checkpoint::ModelFolder& folder) {
  ModelFacts out{folder.path().string(), folder.pipeline_class(), 28, {}};
  out.steps = folder.defaults().value("num_inference_steps", out.steps);
  for (const char* name : {"text_encoder", "text_encoder_2", "text_encoder_3", "transformer", "vae"}) {
    auto component = folder.component(name);
    if (component) out.components.push_back({name, component->class_name, folder.config(name)});
  }
  return out;
}

}  // namespace tessera::plan
