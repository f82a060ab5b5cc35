#include "tessera/pipelines/flux2_pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/models/autoencoder_kl_flux2.h"
#include "tessera/models/flux2_transformer.h"
#include "tessera/models/mistral3.h"
#include "tessera/models/qwen3.h"
#include "tessera/ops/ops.h"
#include "tessera/pipelines/arguments.h"
#include "tessera/pipelines/batch.h"
#include "tessera/pipelines/call.h"
#include "tessera/pipelines/component_call.h"
#include "tessera/pipelines/decode.h"
#include "tessera/pipelines/denoise.h"
#include "tessera/pipelines/loading.h"
#include "tessera/pipelines/stages.h"
#include "tessera/schedulers/flow_match_euler.h"
#include "tessera/text/chat.h"
#include "tessera/text/tokenizer.h"

namespace tessera::pipelines {

struct Flux2Variant {
  std::string_view class_name;
  std::initializer_list<std::string_view> text_encoders, tokenizers;  // classes
  std::string_view encoder_shown;                                     // in warnings
  std::vector<int> out_layers;
  bool takes_guidance;  // as an input of the transformer; else guided by two predictions
  Loaded<models::DecoderModel> (*load_text_encoder)(const Loader&);
};

namespace {

constexpr int kLongestSequence = 8192;
constexpr const char* kTextEncoder = "text_encoder";

template <typename Model, typename Config>
Loaded<models::DecoderModel> load_text_encoder(const Loader& loader) {
  Loaded<Model> loaded = loader.model<Model, Config>(kTextEncoder);
  Loaded<models::DecoderModel> out;
  static_cast<Component&>(out) = std::move(static_cast<Component&>(loaded));
  out.model = std::move(loaded.model);
  return out;
}

const Flux2Variant& dev_variant() {
  static const Flux2Variant variant{"Flux2Pipeline",
                                    {"Mistral3ForConditionalGeneration"},
                                    {"PixtralProcessor"},
                                    "Mistral",
                                    {kMistral3OutLayers.begin(), kMistral3OutLayers.end()},
                                    true,
                                    load_text_encoder<models::Mistral3TextModel, models::Mistral3Config>};
  return variant;
}

const Flux2Variant& klein_variant() {
  static const Flux2Variant variant{"Flux2KleinPipeline",
                                    {"Qwen3ForCausalLM"},
                                    {"Qwen2TokenizerFast", "Qwen2Tokenizer"},
                                    "Qwen",
                                    {kQwen3OutLayers.begin(), kQwen3OutLayers.end()},
                                    false,
                                    load_text_encoder<models::Qwen3TextModel, models::Qwen3Config>};
  return variant;
}

// The arguments of a call with every default filled in and checked.
struct Flux2Plan : CommonPlan {
  std::vector<std::string> prompt;
  std::int64_t rows = 0, columns = 0;  // of the picture's tokens
  std::vector<int> out_layers;
  int top_layer = 0;  // the highest of them
  int steps_for_shift = 0;
  double guidance_scale = 0;
  bool guidance_used = false;  // as an input or to guide
  bool guided = false;         // by a second prediction, for the empty prompt
};

// [B, C, H, W] -> [B, H * W, C].
Tensor pack(const Tensor& x) {
  return ops::transpose(ops::reshape(x, {x.dim(0), x.dim(1), x.dim(2) * x.dim(3)}), {0, 2, 1});
}

}  // namespace

struct Flux2Family::Parts {
  const Flux2Variant& variant;
  checkpoint::ModelFolder folder;
  const Residence& residence;
  schedulers::FlowMatchEulerConfig scheduler;
  std::unique_ptr<text::Tokenizer> tokenizer;
  const text::ChatForm* form;
  Loaded<models::DecoderModel> text_encoder;
  Loaded<models::Flux2Transformer> transformer;
  Loaded<models::AutoencoderKlFlux2Decoder> vae;
  bool is_distilled;
  mutable std::mutex layers_mutex = {};
  mutable int top_layer = -1;  // the highest hidden state whose weights are wanted on the device

  Context& context() const { return residence.context(); }
  const graph::MeshPtr& mesh() const { return residence.mesh(); }
  DType dtype() const { return residence.dtype(); }
  const models::Flux2TransformerConfig& config() const { return transformer.model->config(); }

  void check_fit() const;
  Flux2Plan plan(const Arguments& a) const;
  void plan_guidance(const Arguments& a, Flux2Plan& plan) const;
  // The highest hidden state that a call reads if it does not say.
  int default_top_layer() const;
  // From now on the weights for that hidden state are put on the device with those wanted so far.
  void want_layers(int hidden_state) const;
  // For the prompts and, if guided, for empty ones: [images, tokens, joint_attention_dim] each.
  std::vector<Tensor> encode(const Flux2Plan& plan, Trace* trace) const;
  Tensor encode(const std::vector<std::string>& prompts, const Flux2Plan& plan, const char* call,
                Trace* trace) const;
  Denoised run(const Arguments& arguments, const Flux2Plan& plan, const std::vector<Tensor>& embeds,
               const Hooks& hooks) const;
  ModelCall model_call(const Flux2Plan& plan, const std::vector<Tensor>& embeds, Trace* trace) const;
  void trace_positions(const Flux2Plan& plan, std::int64_t text_tokens, Trace& trace) const;
  Settings settings(const Arguments& arguments, const Flux2Plan& plan) const;
};

Flux2Family::~Flux2Family() = default;
std::string_view Flux2Family::class_name() const { return parts_->variant.class_name; }

Flux2Family::Flux2Family(const Flux2Variant& variant, const checkpoint::ModelFolder& folder, Context& context,
                         const LoadOptions& options, const Hooks& hooks)
    : TextToImage(context, options.dtype) {
  check_compute_dtype(options.dtype);
  if (hooks.on_stage) hooks.on_stage("load");
  Loader loader(folder, options.tensor_parallel);
  loader.expect_class("scheduler", {"FlowMatchEulerDiscreteScheduler"});
  loader.expect_class("tokenizer", variant.tokenizers);
  loader.expect_class(kTextEncoder, variant.text_encoders);
  loader.expect_class("transformer", {"Flux2Transformer2DModel"});
  loader.expect_class("vae", {"AutoencoderKLFlux2"});
  const nlohmann::json& index = folder.index();
  // Everything is read and checked before the first byte goes to the device.
  parts_ = std::unique_ptr<Parts>(new Parts{
      .variant = variant,
      .folder = folder,
      .residence = residence_,
      .scheduler = loader.config<schedulers::FlowMatchEulerConfig>("scheduler"),
      .tokenizer = loader.tokenizer("tokenizer"),
      .form = text::find_chat_form(folder.require_component("tokenizer").class_name),
      .text_encoder = variant.load_text_encoder(loader),
      .transformer = loader.model<models::Flux2Transformer, models::Flux2TransformerConfig>("transformer"),
      .vae = loader.model<models::AutoencoderKlFlux2Decoder, models::AutoencoderKlFlux2Config>("vae"),
      .is_distilled = nn::Config(index, "model_index.json").flag("is_distilled", false),
  });
  Parts& parts = *parts_;
  loader.check_tensor_parallel();
  parts.check_fit();
  parts.want_layers(parts.default_top_layer());
  for (Component* component :
       std::initializer_list<Component*>{&parts.text_encoder, &parts.transformer, &parts.vae}) {
    residence_.add(*component);
  }
  settle(options);
}

std::unique_ptr<Flux2Pipeline> Flux2Pipeline::from_pretrained(const checkpoint::ModelFolder& folder,
                                                              Context& context, const LoadOptions& options,
                                                              const Hooks& hooks) {
  return std::unique_ptr<Flux2Pipeline>(new Flux2Pipeline(dev_variant(), folder, context, options, hooks));
}

std::unique_ptr<Flux2KleinPipeline> Flux2KleinPipeline::from_pretrained(const checkpoint::ModelFolder& folder,
                                                                        Context& context,
                                                                        const LoadOptions& options,
                                                                        const Hooks& hooks) {
  return std::unique_ptr<Flux2KleinPipeline>(
      new Flux2KleinPipeline(klein_variant(), folder, context, options, hooks));
}

// Components that are whole by themselves may still not belong together.
void Flux2Family::Parts::check_fit() const {
  std::int64_t latents = 4 * vae.model->config().latent_channels;
  if (latents != config().in_channels) {
    fail(ErrorCode::kDataLoss,
         "{}: the autoencoder's latents, packed 2x2, have {} channels; the transformer's in_channels are {}",
         folder.path().string(), latents, config().in_channels);
  }
}

int Flux2Family::Parts::default_top_layer() const {
  auto last = static_cast<int>(text_encoder.model->config().num_hidden_layers);
  return std::min(std::ranges::max(variant.out_layers), last);
}

void Flux2Family::Parts::want_layers(int hidden_state) const {
  if (hidden_state <= top_layer) return;
  top_layer = hidden_state;
  const models::DecoderModel& model = *text_encoder.model;
  text_encoder.store->want([&](std::string_view path) { return model.needs(path, hidden_state); });
}

Flux2Plan Flux2Family::Parts::plan(const Arguments& a) const {
  refuse_lacking_arguments(variant.class_name, a);
  CallDefaults defaults{.num_inference_steps = 50, .longest_sequence_length = kLongestSequence};
  Flux2Plan p;
  static_cast<CommonPlan&>(p) = common_plan(a, folder, defaults);
  p.prompt = a.prompt;
  std::int64_t multiple = 2 * vae.model->config().scale_factor();
  floor_size(p, multiple);
  p.rows = p.height / multiple;
  p.columns = p.width / multiple;
  // Diffusers lets the shift follow the steps that were asked for, not the sigmas that were given.
  p.steps_for_shift = static_cast<int>(
      integer_or_default(a.num_inference_steps, folder, "num_inference_steps", defaults.num_inference_steps));
  p.out_layers = a.text_encoder_out_layers.value_or(variant.out_layers);
  p.top_layer = text_encoder.model->highest(p.out_layers);
  std::int64_t width = text_encoder.model->config().hidden_size;
  auto features = static_cast<std::int64_t>(p.out_layers.size()) * width;
  if (features != config().joint_attention_dim) {
    invalid_argument("text_encoder_out_layers: {} layers of {} features; the transformer takes {} in all",
                     p.out_layers.size(), width, config().joint_attention_dim);
  }
  plan_guidance(a, p);
  return p;
}

void Flux2Family::Parts::plan_guidance(const Arguments& a, Flux2Plan& p) const {
  p.guidance_scale = number_or_default(a.guidance_scale, folder, "guidance_scale", 4.0);
  check_finite("guidance_scale", p.guidance_scale);
  if (variant.takes_guidance) {
    p.guidance_used = config().guidance_embeds;
    if (a.guidance_scale && !p.guidance_used) {
      log(LogLevel::kWarning, "guidance_scale {} is ignored: this model has no guidance input",
          p.guidance_scale);
    }
    return;
  }
  p.guided = p.guidance_scale > 1 && !is_distilled;
  p.guidance_used = p.guided;
  if (a.guidance_scale && p.guidance_scale > 1 && is_distilled) {
    log(LogLevel::kWarning, "guidance_scale {} is ignored: this model is distilled", p.guidance_scale);
  }
}

Tensor Flux2Family::Parts::encode(const std::vector<std::string>& prompts, const Flux2Plan& plan,
                                  const char* call, Trace* trace) const {
  TokenBatch ids = tokenize_batch(*tokenizer, variant.encoder_shown, prompts, plan.max_sequence_length, form);
  if (trace != nullptr) {
    trace->add_i32(fmt::format("text_encoder.input_ids{}", call), ids.shape, ids.ids);
    trace->add_i32(fmt::format("text_encoder.attention_mask{}", call), ids.shape, ids.attention_mask);
  }
  std::vector<Tensor> states =
      text_encoder.model->forward(context(), mesh(), ids.ids, ids.attention_mask, ids.shape, plan.out_layers);
  return repeat_rows(ops::concatenate(states, 2), plan.images_per_prompt);
}

std::vector<Tensor> Flux2Family::Parts::encode(const Flux2Plan& plan, Trace* trace) const {
  std::unique_lock lock(layers_mutex);
  want_layers(plan.top_layer);
  Residence::Use on_device(residence, text_encoder);
  // Those that no call has read before.
  text_encoder.store->place_missing(context(), mesh(), dtype());
  lock.unlock();
  std::vector<Tensor> out{encode(plan.prompt, plan, "", trace)};
  if (plan.guided) out.push_back(encode(std::vector<std::string>(plan.prompts), plan, ".call1", trace));
  return out;
}

void Flux2Family::Parts::trace_positions(const Flux2Plan& plan, std::int64_t text_tokens,
                                         Trace& trace) const {
  std::vector<std::int32_t> text;
  std::vector<float> image;
  for (std::int64_t i = 0; i < plan.images(); ++i) {
    for (std::int64_t t = 0; t < text_tokens; ++t)
      text.insert(text.end(), {0, 0, 0, static_cast<std::int32_t>(t)});
    for (std::int64_t r = 0; r < plan.rows; ++r) {
      for (std::int64_t c = 0; c < plan.columns; ++c) {
        image.insert(image.end(), {0.0f, static_cast<float>(r), static_cast<float>(c), 0.0f});
      }
    }
  }
  trace.add_i32("text_ids", {plan.images(), text_tokens, 4}, text);
  trace.add_f32("image_ids", {plan.images(), plan.rows * plan.columns, 4}, image);
}

ModelCall Flux2Family::Parts::model_call(const Flux2Plan& plan, const std::vector<Tensor>& embeds,
                                         Trace* trace) const {
  const models::Flux2Transformer& model = *transformer.model;
  nn::RopeTables rope = model.rope_tables(context(), mesh(), embeds[0].dim(1), plan.rows, plan.columns);
  auto scale = static_cast<float>(plan.guidance_scale);
  Tensor guidance, cfg_scale;
  if (plan.guided) {
    cfg_scale = context().from_f32(std::span(&scale, 1), {}, mesh());
  } else if (plan.guidance_used) {
    std::vector<float> values(static_cast<std::size_t>(plan.images()), scale);
    guidance = context().from_f32(values, {plan.images()}, mesh());
  }
  return [=, &model](int step, const Tensor& x, const Tensor& time) {
    Tensor out = model.forward(x, embeds[0], time, guidance, rope);
    bool traced = step == 0 && trace != nullptr;
    if (traced) {
      trace->add("transformer_in_step0", x);
      trace->add("transformer_timestep_step0", time);
      if (guidance) trace->add("transformer_guidance", guidance);
      trace->add("transformer_out_step0", out);
    }
    if (plan.guided) out = guide(cfg_scale, model.forward(x, embeds[1], time, guidance, rope), out);
    if (traced) trace->add("noise_pred_guided_step0", out);
    return out;
  };
}

Denoised Flux2Family::Parts::run(const Arguments& arguments, const Flux2Plan& plan,
                                 const std::vector<Tensor>& embeds, const Hooks& hooks) const {
  Trace* trace = hooks.trace;
  Shape shape{plan.images(), config().in_channels, plan.rows, plan.columns};
  Tensor latents =
      pack(arguments.latents ? given_latents(context(), mesh(), *arguments.latents, shape, dtype())
                             : drawn_latents(context(), mesh(), arguments.seeds, shape, dtype(), trace));
  schedulers::Schedule schedule = schedulers::flow_match_schedule(
      scheduler, plan.steps,
      arguments.sigmas ? *arguments.sigmas : schedulers::linspace(1.0, 1.0 / plan.steps, plan.steps),
      schedulers::empirical_mu(plan.rows * plan.columns, plan.steps_for_shift));
  if (trace != nullptr) {
    trace_start(*trace, latents, schedule);
    trace->add("prompt_embeds", embeds[0]);
    if (plan.guided) trace->add("negative_prompt_embeds", embeds[1]);
    trace_positions(plan, embeds[0].dim(1), *trace);
  }
  DeviceSchedule on_device =
      upload_schedule(context(), mesh(), schedule.timesteps, per_thousand(schedule.timesteps, dtype()),
                      schedule.sigmas, plan.images());
  ModelCall call = model_call(plan, embeds, trace);
  return denoise(context(), latents, on_device, 0, plan.steps, call, schedulers::euler_step, hooks);
}

Settings Flux2Family::Parts::settings(const Arguments& arguments, const Flux2Plan& plan) const {
  Settings out = common_settings(arguments, plan);
  if (plan.guidance_used) out.emplace_back("guidance_scale", fmt::format("{}", plan.guidance_scale));
  if (arguments.text_encoder_out_layers) {
    out.emplace_back("text_encoder_out_layers", fmt::format("{}", fmt::join(plan.out_layers, ",")));
  }
  return out;
}

Result Flux2Family::generate(const Arguments& arguments, const Hooks& hooks) const {
  const Parts& p = *parts_;
  Flux2Plan plan = p.plan(arguments);
  std::vector<Tensor> embeds;
  return run_stages(residence_, p.transformer, p.vae, plan, p.settings(arguments, plan), hooks,
                    {.encode = [&] { embeds = p.encode(plan, hooks.trace); },
                     .denoise = [&] { return p.run(arguments, plan, embeds, hooks); },
                     .decode =
                         [&](const Tensor& latents) {
                           Tensor unpacked = p.vae.model->unpack(latents, plan.rows, plan.columns);
                           return decode_latents(*p.vae.model, unpacked, hooks.trace);
                         }});
}

}  // namespace tessera::pipelines
