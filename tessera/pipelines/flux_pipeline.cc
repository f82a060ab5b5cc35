#include "tessera/pipelines/flux_pipeline.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/models/autoencoder_kl.h"
#include "tessera/models/clip_text.h"
#include "tessera/models/flux_transformer.h"
#include "tessera/models/t5_encoder.h"
#include "tessera/ops/ops.h"
#include "tessera/pipelines/arguments.h"
#include "tessera/pipelines/batch.h"
#include "tessera/pipelines/call.h"
#include "tessera/pipelines/decode.h"
#include "tessera/pipelines/denoise.h"
#include "tessera/pipelines/loading.h"
#include "tessera/pipelines/stages.h"
#include "tessera/schedulers/flow_match_euler.h"
#include "tessera/text/tokenizer.h"

namespace tessera::pipelines {
namespace {

constexpr int kClipLength = 77;

// The arguments of a call with every default filled in and checked. Height and width are those of the
// picture.
struct CallPlan : CommonPlan {
  std::vector<std::string> prompt, prompt_2, negative_prompt, negative_prompt_2;
  std::int64_t latent_height = 0, latent_width = 0;  // both even
  double guidance_scale = 0, true_cfg_scale = 1;
  bool true_cfg = false;

  std::int64_t tokens() const { return latent_height / 2 * (latent_width / 2); }
};

// [B, C, H, W] -> [B, H/2 * W/2, 4C]: each token is a 2x2 patch of all channels, as (channel, row, column).
Tensor pack_latents(const Tensor& x) {
  std::int64_t b = x.dim(0), c = x.dim(1), h = x.dim(2), w = x.dim(3);
  Tensor patches = ops::transpose(ops::reshape(x, {b, c, h / 2, 2, w / 2, 2}), {0, 2, 4, 1, 3, 5});
  return ops::reshape(patches, {b, h / 2 * (w / 2), 4 * c});
}

// The reverse, for latents of height x width.
Tensor unpack_latents(const Tensor& x, std::int64_t height, std::int64_t width) {
  std::int64_t b = x.dim(0), c = x.dim(2) / 4;
  Tensor patches = ops::reshape(x, {b, height / 2, width / 2, c, 2, 2});
  return ops::reshape(ops::transpose(patches, {0, 3, 1, 4, 2, 5}), {b, c, height, width});
}

struct PromptEmbeds {
  Tensor sequence;  // [images, tokens, joint_attention_dim]
  Tensor pooled;    // [images, pooled_projection_dim]
};

}  // namespace

struct FluxPipeline::Parts {
  checkpoint::ModelFolder folder;
  const Residence& residence;
  schedulers::FlowMatchEulerConfig scheduler;
  std::unique_ptr<text::Tokenizer> tokenizer, tokenizer_2;
  Loaded<models::ClipTextModel> text_encoder;
  Loaded<models::T5Encoder> text_encoder_2;
  Loaded<models::FluxTransformer> transformer;
  Loaded<models::AutoencoderKlDecoder> vae;

  Context& context() const { return residence.context(); }
  DType dtype() const { return residence.dtype(); }

  CallPlan plan(const Arguments& a) const;
  // For the prompts and, with true_cfg, the negative prompts.
  std::vector<PromptEmbeds> encode(const CallPlan& plan, Trace* trace) const;
  Tensor initial_latents(const Arguments& arguments, const CallPlan& plan, Trace* trace) const;
  Denoised run(const Arguments& arguments, const CallPlan& plan, const PromptEmbeds& embeds,
               const PromptEmbeds& negative, const Hooks& hooks) const;
  Settings settings(const Arguments& arguments, const CallPlan& plan) const;
};

FluxPipeline::FluxPipeline(Context& context, DType dtype) : TextToImage(context, dtype) {}
FluxPipeline::~FluxPipeline() = default;

std::unique_ptr<FluxPipeline> FluxPipeline::from_pretrained(const checkpoint::ModelFolder& folder,
                                                            Context& context, const LoadOptions& options,
                                                            const Hooks& hooks) {
  check_compute_dtype(options.dtype);
  if (hooks.on_stage) hooks.on_stage("load");
  Loader loader(folder, options.tensor_parallel);
  loader.expect_class("scheduler", {"FlowMatchEulerDiscreteScheduler"});
  loader.expect_class("text_encoder", {"CLIPTextModel"});
  loader.expect_class("text_encoder_2", {"T5EncoderModel"});
  loader.expect_class("transformer", {"FluxTransformer2DModel"});
  loader.expect_class("vae", {"AutoencoderKL"});
  // Everything is read and checked before the first byte goes to the device.
  std::unique_ptr<FluxPipeline> pipeline(new FluxPipeline(context, options.dtype));
  Residence& residence = pipeline->residence_;
  pipeline->parts_ = std::unique_ptr<Parts>(new Parts{
      .folder = folder,
      .residence = residence,
      .scheduler = loader.config<schedulers::FlowMatchEulerConfig>("scheduler"),
      .tokenizer = loader.tokenizer("tokenizer"),
      .tokenizer_2 = loader.tokenizer("tokenizer_2"),
      .text_encoder = loader.model<models::ClipTextModel, models::ClipTextConfig>("text_encoder"),
      .text_encoder_2 = loader.model<models::T5Encoder, models::T5Config>("text_encoder_2"),
      .transformer = loader.model<models::FluxTransformer, models::FluxTransformerConfig>("transformer"),
      .vae = loader.model<models::AutoencoderKlDecoder, models::AutoencoderKlConfig>("vae"),
  });
  Parts& parts = *pipeline->parts_;
  loader.check_tensor_parallel();
  for (Component* component : std::initializer_list<Component*>{&parts.text_encoder, &parts.text_encoder_2,
                                                                &parts.transformer, &parts.vae}) {
    residence.add(*component);
  }
  pipeline->settle(options);
  return pipeline;
}

CallPlan FluxPipeline::Parts::plan(const Arguments& a) const {
  refuse_lacking_arguments("FluxPipeline", a);
  CallPlan p;
  std::int64_t factor = 2 * vae.model->config().scale_factor();
  static_cast<CommonPlan&>(p) = common_plan(a, folder, {.shortest_side = factor});
  p.prompt = a.prompt;
  p.prompt_2 = prompts_for(a.prompt_2, p.prompt, p.prompts, "prompt_2");

  floor_size(p, factor);
  p.latent_height = 2 * (p.height / factor);
  p.latent_width = 2 * (p.width / factor);

  p.guidance_scale = number_or_default(a.guidance_scale, folder, "guidance_scale", 3.5);
  p.true_cfg_scale = number_or_default(a.true_cfg_scale, folder, "true_cfg_scale", 1.0);
  check_finite("guidance_scale", p.guidance_scale);
  check_finite("true_cfg_scale", p.true_cfg_scale);
  if (a.guidance_scale && *a.guidance_scale != 0 && !transformer.model->config().guidance_embeds) {
    log(LogLevel::kWarning, "guidance_scale {} is ignored: this model has no guidance input",
        p.guidance_scale);
  }
  p.true_cfg = p.true_cfg_scale > 1 && a.negative_prompt.has_value();
  if (p.true_cfg_scale > 1 && !a.negative_prompt) {
    log(LogLevel::kWarning, "true_cfg_scale {} is ignored: it needs a negative prompt", p.true_cfg_scale);
  }
  if (a.negative_prompt && p.true_cfg_scale <= 1) {
    log(LogLevel::kWarning, "the negative prompt is ignored: it needs a true_cfg_scale above 1");
  }
  if (a.negative_prompt_2 && !a.negative_prompt) {
    invalid_argument("negative_prompt_2 was given without negative_prompt");
  }
  if (a.negative_prompt) {
    p.negative_prompt = prompts_for(a.negative_prompt, {}, p.prompts, "negative_prompt");
    p.negative_prompt_2 = prompts_for(a.negative_prompt_2, p.negative_prompt, p.prompts, "negative_prompt_2");
  }
  return p;
}

std::vector<PromptEmbeds> FluxPipeline::Parts::encode(const CallPlan& plan, Trace* trace) const {
  struct Texts {
    const std::vector<std::string>&clip, &t5;
    const char* call;  // the ending of the ids' names in the trace
  };
  std::vector<Texts> texts{{plan.prompt, plan.prompt_2, ""}};
  if (plan.true_cfg) texts.push_back({plan.negative_prompt, plan.negative_prompt_2, ".call1"});
  std::vector<PromptEmbeds> out(texts.size());
  // One encoder after the other, so that an offloaded one moves once.
  {
    Residence::Use on_device(residence, text_encoder);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      TokenBatch ids = tokenize_batch(*tokenizer, "CLIP", texts[i].clip, kClipLength);
      if (trace) trace->add_i32(fmt::format("text_encoder.input_ids{}", texts[i].call), ids.shape, ids.ids);
      Tensor pooled = text_encoder.model->forward(context(), residence.mesh(), ids.ids, ids.shape).pooled;
      out[i].pooled = repeat_rows(pooled, plan.images_per_prompt);
    }
  }
  Residence::Use on_device(residence, text_encoder_2);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    TokenBatch ids = tokenize_batch(*tokenizer_2, "T5", texts[i].t5, plan.max_sequence_length);
    if (trace) trace->add_i32(fmt::format("text_encoder_2.input_ids{}", texts[i].call), ids.shape, ids.ids);
    Tensor sequence = text_encoder_2.model->forward(context(), residence.mesh(), ids.ids, ids.shape);
    out[i].sequence = repeat_rows(sequence, plan.images_per_prompt);
  }
  return out;
}

Tensor FluxPipeline::Parts::initial_latents(const Arguments& arguments, const CallPlan& plan,
                                            Trace* trace) const {
  std::int64_t channels = transformer.model->config().in_channels / 4;
  if (arguments.latents) {
    return given_latents(context(), residence.mesh(), *arguments.latents,
                         {plan.images(), plan.tokens(), 4 * channels}, dtype());
  }
  Shape shape{plan.images(), channels, plan.latent_height, plan.latent_width};
  return pack_latents(drawn_latents(context(), residence.mesh(), arguments.seeds, shape, dtype(), trace));
}

Denoised FluxPipeline::Parts::run(const Arguments& arguments, const CallPlan& plan,
                                  const PromptEmbeds& embeds, const PromptEmbeds& negative,
                                  const Hooks& hooks) const {
  Trace* trace = hooks.trace;
  Tensor latents = initial_latents(arguments, plan, trace);
  schedulers::Schedule schedule = schedulers::flow_match_schedule(
      scheduler, plan.steps,
      arguments.sigmas ? *arguments.sigmas : schedulers::linspace(1.0, 1.0 / plan.steps, plan.steps),
      schedulers::calculate_shift(scheduler, plan.tokens()));
  if (trace != nullptr) {
    trace_start(*trace, latents, schedule);
    trace->add("prompt_embeds", embeds.sequence);
    trace->add("pooled_prompt_embeds", embeds.pooled);
    if (plan.true_cfg) {
      trace->add("negative_prompt_embeds", negative.sequence);
      trace->add("negative_pooled_prompt_embeds", negative.pooled);
    }
    trace->add("transformer_in_step0", latents);
  }
  std::vector<float> model_time = per_thousand(schedule.timesteps, dtype());
  DeviceSchedule on_device = upload_schedule(context(), residence.mesh(), schedule.timesteps, model_time,
                                             schedule.sigmas, plan.images());
  auto batch = static_cast<std::size_t>(plan.images());
  const models::FluxTransformer& model = *transformer.model;
  Tensor guidance;
  if (model.config().guidance_embeds) {
    std::vector<float> values(batch, static_cast<float>(plan.guidance_scale));
    guidance = context().from_f32(values, {plan.images()}, residence.mesh());
  }
  Tensor cfg_scale;
  if (plan.true_cfg) {
    auto scale = static_cast<float>(plan.true_cfg_scale);
    cfg_scale = context().from_f32(std::span(&scale, 1), {}, residence.mesh());
  }
  if (trace != nullptr) {
    trace->add_f32("transformer_timestep_step0", {plan.images()},
                   std::vector<float>(batch, model_time.at(0)));
    if (model.config().guidance_embeds) trace->add("transformer_guidance", guidance);
    std::vector<float> image_ids;
    for (std::int64_t y = 0; y < plan.latent_height / 2; ++y) {
      for (std::int64_t x = 0; x < plan.latent_width / 2; ++x) {
        image_ids.insert(image_ids.end(), {0.0f, static_cast<float>(y), static_cast<float>(x)});
      }
    }
    trace->add_f32("image_ids", {plan.tokens(), 3}, image_ids);
  }
  nn::RopeTables rope = model.rope_tables(context(), residence.mesh(), embeds.sequence.dim(1),
                                          plan.latent_height / 2, plan.latent_width / 2);

  auto predict = [&](const PromptEmbeds& text, const Tensor& x, const Tensor& time) {
    return model.forward(x, text.sequence, text.pooled, time, guidance, rope);
  };
  auto call = [&](int step, const Tensor& x, const Tensor& time) {
    Tensor out = predict(embeds, x, time);
    if (step == 0 && trace != nullptr) trace->add("transformer_out_step0", out);
    if (plan.true_cfg) out = guide(cfg_scale, predict(negative, x, time), out);
    if (step == 0 && trace != nullptr) trace->add("noise_pred_guided_step0", out);
    return out;
  };
  return denoise(context(), latents, on_device, 0, plan.steps, call, schedulers::euler_step, hooks);
}

Settings FluxPipeline::Parts::settings(const Arguments& arguments, const CallPlan& plan) const {
  Settings out = common_settings(arguments, plan);
  if (transformer.model->config().guidance_embeds) {
    out.emplace_back("guidance_scale", fmt::format("{}", plan.guidance_scale));
  }
  if (plan.true_cfg) out.emplace_back("true_cfg_scale", fmt::format("{}", plan.true_cfg_scale));
  return out;
}

Result FluxPipeline::generate(const Arguments& arguments, const Hooks& hooks) const {
  const Parts& p = *parts_;
  CallPlan plan = p.plan(arguments);
  std::vector<PromptEmbeds> embeds;
  return run_stages(residence_, p.transformer, p.vae, plan, p.settings(arguments, plan), hooks,
                    {.encode = [&] { embeds = p.encode(plan, hooks.trace); },
                     .denoise = [&] { return p.run(arguments, plan, embeds.front(), embeds.back(), hooks); },
                     .decode =
                         [&](const Tensor& latents) {
                           Tensor unpacked = unpack_latents(latents, plan.latent_height, plan.latent_width);
                           return decode_latents(*p.vae.model, unpacked, hooks.trace);
                         }});
}

}  // namespace tessera::pipelines
