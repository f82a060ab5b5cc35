#include "tessera/pipelines/stable_diffusion_3_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/models/autoencoder_kl.h"
#include "tessera/models/clip_text.h"
#include "tessera/models/sd3_transformer.h"
#include "tessera/models/t5_encoder.h"
#include "tessera/ops/ops.h"
#include "tessera/pipelines/batch.h"
#include "tessera/pipelines/decode.h"
#include "tessera/pipelines/denoise.h"
#include "tessera/pipelines/loading.h"
#include "tessera/pipelines/stable_diffusion_3_plan.h"
#include "tessera/pipelines/stages.h"
#include "tessera/schedulers/flow_match_euler.h"
#include "tessera/text/tokenizer.h"

namespace tessera::pipelines {
namespace {

constexpr int kClipLength = 77;

struct PromptEmbeds {
  Tensor sequence;  // [images, 77 + max_sequence_length, joint_attention_dim]
  Tensor pooled;    // [images, pooled_projection_dim]
};

// One of the text encoders with its tokenizer.
template <typename Model>
struct TextEncoder {
  std::string shown;  // in warnings
  std::unique_ptr<text::Tokenizer> tokenizer;
  Loaded<Model> model;
};

using ClipEncoder = TextEncoder<models::ClipTextModelWithProjection>;
using T5TextEncoder = TextEncoder<models::T5Encoder>;

struct ClipWidths {
  std::int64_t hidden = 0, pooled = 0;
};

// What both CLIP text models make of one call, side by side.
struct ClipEmbeds {
  std::vector<Tensor> hidden;  // [prompts, 77, width]
  std::vector<Tensor> pooled;  // [prompts, width]
};

// The texts of a call of the encoders: prompts or negative prompts.
struct CallTexts {
  const Sd3Plan::Texts* texts;
  std::size_t clip_skip;
  const char* call;  // the ending of the ids' names in the trace
};

template <typename Model>
TokenBatch tokenize(const TextEncoder<Model>& encoder, const std::vector<std::string>& texts, int length,
                    const char* call, Trace* trace) {
  TokenBatch ids = tokenize_batch(*encoder.tokenizer, encoder.shown, texts, length);
  if (trace != nullptr)
    trace->add_i32(fmt::format("{}.input_ids{}", encoder.model.name, call), ids.shape, ids.ids);
  return ids;
}

// Nothing if the checkpoint does without this text encoder.
template <typename Model, typename Config>
std::optional<TextEncoder<Model>> load_text_encoder(const checkpoint::ModelFolder& folder,
                                                    const Loader& loader, const std::string& name,
                                                    const std::string& tokenizer, const std::string& shown,
                                                    std::string_view class_name) {
  if (!folder.component(name)) return std::nullopt;
  loader.expect_class(name, {class_name});
  return TextEncoder<Model>{shown, loader.tokenizer(tokenizer), loader.model<Model, Config>(name)};
}

}  // namespace

struct StableDiffusion3Pipeline::Parts {
  checkpoint::ModelFolder folder;
  const Residence& residence;
  schedulers::FlowMatchEulerConfig scheduler;
  std::array<std::optional<ClipEncoder>, 2> clip;
  std::optional<T5TextEncoder> t5;
  Loaded<models::Sd3Transformer> transformer;
  Loaded<models::AutoencoderKlDecoder> vae;

  Context& context() const { return residence.context(); }
  const graph::MeshPtr& mesh() const { return residence.mesh(); }
  DType dtype() const { return residence.dtype(); }
  const models::Sd3TransformerConfig& config() const { return transformer.model->config(); }
  void check_widths() const;
  Sd3Limits limits() const;
  // The widths of a CLIP text model's embeddings.
  ClipWidths clip_widths(std::size_t which) const;

  Tensor zeros(const Shape& shape) const;
  // For the prompts and, with guidance, the negative prompts.
  std::vector<PromptEmbeds> encode(const Sd3Plan& plan, Trace* trace) const;
  // What one of the CLIP text models adds: hidden states and pooled embeddings, for each of `texts`.
  void encode_clip(std::size_t which, const Sd3Plan& plan, const std::vector<CallTexts>& texts,
                   std::vector<ClipEmbeds>& out, Trace* trace) const;
  std::vector<Tensor> encode_t5(const Sd3Plan& plan, const std::vector<CallTexts>& texts, Trace* trace) const;
  Denoised run(const Arguments& arguments, const Sd3Plan& plan, const PromptEmbeds& embeds,
               const PromptEmbeds& negative, const Hooks& hooks) const;
  // The prediction of a step, guided as the plan says.
  ModelCall model_call(const Sd3Plan& plan, const PromptEmbeds& embeds, const PromptEmbeds& negative,
                       Trace* trace) const;
};

StableDiffusion3Pipeline::StableDiffusion3Pipeline(Context& context, DType dtype)
    : TextToImage(context, dtype) {}
StableDiffusion3Pipeline::~StableDiffusion3Pipeline() = default;

std::unique_ptr<StableDiffusion3Pipeline> StableDiffusion3Pipeline::from_pretrained(
    const checkpoint::ModelFolder& folder, Context& context, const LoadOptions& options, const Hooks& hooks) {
  check_compute_dtype(options.dtype);
  if (hooks.on_stage) hooks.on_stage("load");
  Loader loader(folder, options.tensor_parallel);
  loader.expect_class("scheduler", {"FlowMatchEulerDiscreteScheduler"});
  loader.expect_class("transformer", {"SD3Transformer2DModel"});
  loader.expect_class("vae", {"AutoencoderKL"});
  auto load_clip = [&](const char* name, const char* tokenizer, const char* shown) {
    return load_text_encoder<models::ClipTextModelWithProjection, models::ClipTextConfig>(
        folder, loader, name, tokenizer, shown, "CLIPTextModelWithProjection");
  };
  // Everything is read and checked before the first byte goes to the device.
  std::unique_ptr<StableDiffusion3Pipeline> pipeline(new StableDiffusion3Pipeline(context, options.dtype));
  Residence& residence = pipeline->residence_;
  pipeline->parts_ = std::unique_ptr<Parts>(new Parts{
      .folder = folder,
      .residence = residence,
      .scheduler = loader.config<schedulers::FlowMatchEulerConfig>("scheduler"),
      .clip = {load_clip("text_encoder", "tokenizer", "the first CLIP"),
               load_clip("text_encoder_2", "tokenizer_2", "the second CLIP")},
      .t5 = load_text_encoder<models::T5Encoder, models::T5Config>(folder, loader, "text_encoder_3",
                                                                   "tokenizer_3", "T5", "T5EncoderModel"),
      .transformer = loader.model<models::Sd3Transformer, models::Sd3TransformerConfig>("transformer"),
      .vae = loader.model<models::AutoencoderKlDecoder, models::AutoencoderKlConfig>("vae"),
  });
  Parts& parts = *pipeline->parts_;
  loader.check_tensor_parallel();
  parts.check_widths();
  for (std::optional<ClipEncoder>& clip : parts.clip) {
    if (clip) residence.add(clip->model);
  }
  if (parts.t5) residence.add(parts.t5->model);
  residence.add(parts.transformer);
  residence.add(parts.vae);
  pipeline->settle(options);
  return pipeline;
}

ClipWidths StableDiffusion3Pipeline::Parts::clip_widths(std::size_t which) const {
  if (clip[which]) {
    const models::ClipTextConfig& c = clip[which]->model.model->config();
    return {c.hidden_size, c.projection_dim};
  }
  // An absent one leaves room in the pooled embedding for what its neighbour does not fill. The room that the
  // first leaves before the second's hidden states is as wide, because the published first model is as wide
  // before its projection as after it.
  const std::optional<ClipEncoder>& other = clip[1 - which];
  if (!other) return which == 0 ? ClipWidths{0, config().pooled_projection_dim} : ClipWidths{};
  std::int64_t rest = config().pooled_projection_dim - other->model.model->config().projection_dim;
  return {which == 0 ? rest : 0, rest};
}

// Components that are whole by themselves may still not belong together.
void StableDiffusion3Pipeline::Parts::check_widths() const {
  auto expect = [&](bool fits, const char* what, std::int64_t found, const char* key, std::int64_t wanted) {
    if (fits) return;
    fail(ErrorCode::kDataLoss, "{}: {} is {}, which does not fit the transformer's {} {}",
         folder.path().string(), what, found, key, wanted);
  };
  const models::Sd3TransformerConfig& c = config();
  ClipWidths first = clip_widths(0), second = clip_widths(1);
  std::int64_t hidden = first.hidden + second.hidden, pooled = first.pooled + second.pooled;
  expect(pooled == c.pooled_projection_dim && first.pooled >= 0 && second.pooled >= 0,
         "the width of the pooled CLIP embeddings", pooled, "pooled_projection_dim", c.pooled_projection_dim);
  expect(hidden <= c.joint_attention_dim, "the width of the CLIP embeddings", hidden, "joint_attention_dim",
         c.joint_attention_dim);
  if (t5) {
    std::int64_t width = t5->model.model->config().d_model;
    expect(width == c.joint_attention_dim, "T5's d_model", width, "joint_attention_dim",
           c.joint_attention_dim);
  }
  std::int64_t latents = vae.model->config().latent_channels;
  expect(latents == c.in_channels, "the autoencoder's latent_channels", latents, "in_channels",
         c.in_channels);
  expect(c.out_channels == c.in_channels, "its own out_channels", c.out_channels, "in_channels",
         c.in_channels);
}

Sd3Limits StableDiffusion3Pipeline::Parts::limits() const {
  const models::Sd3TransformerConfig& c = config();
  Sd3Limits out{vae.model->config().scale_factor(), c.patch_size, c.sample_size, c.pos_embed_max_size,
                c.num_layers};
  for (const std::optional<ClipEncoder>& encoder : clip) {
    if (!encoder) continue;
    std::int64_t states = encoder->model.model->config().num_hidden_layers + 1;
    out.clip_hidden_states = out.clip_hidden_states == 0 ? states : std::min(out.clip_hidden_states, states);
  }
  return out;
}

Tensor StableDiffusion3Pipeline::Parts::zeros(const Shape& shape) const {
  return ops::broadcast_to(upload(context(), mesh(), {0.0f}, {1}, dtype()), shape);
}

void StableDiffusion3Pipeline::Parts::encode_clip(std::size_t which, const Sd3Plan& plan,
                                                  const std::vector<CallTexts>& texts,
                                                  std::vector<ClipEmbeds>& out, Trace* trace) const {
  auto batch = static_cast<std::int64_t>(plan.prompts);
  if (!clip[which]) {
    auto [hidden, pooled] = clip_widths(which);
    for (ClipEmbeds& embeds : out) {
      if (hidden > 0) embeds.hidden.push_back(zeros({batch, kClipLength, hidden}));
      if (pooled > 0) embeds.pooled.push_back(zeros({batch, pooled}));
    }
    return;
  }
  const models::ClipTextModelWithProjection& model = *clip[which]->model.model;
  Residence::Use on_device(residence, clip[which]->model);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    TokenBatch ids = tokenize(*clip[which], (*texts[i].texts)[which], kClipLength, texts[i].call, trace);
    models::ClipTextModel::Output states = model.forward(context(), mesh(), ids.ids, ids.shape);
    // The state before the last layer, and clip_skip layers further down.
    out[i].hidden.push_back(states.hidden_states.at(states.hidden_states.size() - 2 - texts[i].clip_skip));
    out[i].pooled.push_back(states.pooled);
  }
}

std::vector<Tensor> StableDiffusion3Pipeline::Parts::encode_t5(const Sd3Plan& plan,
                                                               const std::vector<CallTexts>& texts,
                                                               Trace* trace) const {
  auto batch = static_cast<std::int64_t>(plan.prompts);
  if (!t5) {
    return {texts.size(), zeros({batch, plan.max_sequence_length, config().joint_attention_dim})};
  }
  std::vector<Tensor> out;
  Residence::Use on_device(residence, t5->model);
  for (const CallTexts& of_call : texts) {
    TokenBatch ids = tokenize(*t5, (*of_call.texts)[2], plan.max_sequence_length, of_call.call, trace);
    out.push_back(t5->model.model->forward(context(), mesh(), ids.ids, ids.shape));
  }
  return out;
}

// CLIP's hidden states side by side, padded with zeros to T5's width, before T5's; CLIP's pooled embeddings
// side by side. One encoder after the other, so that an offloaded one moves once.
std::vector<PromptEmbeds> StableDiffusion3Pipeline::Parts::encode(const Sd3Plan& plan, Trace* trace) const {
  std::vector<CallTexts> texts{{&plan.prompt, static_cast<std::size_t>(plan.clip_skip), ""}};
  if (plan.guided) texts.push_back({&plan.negative_prompt, 0, ".call1"});
  std::vector<ClipEmbeds> of_clip(texts.size());
  for (std::size_t which : {0U, 1U}) encode_clip(which, plan, texts, of_clip, trace);
  std::vector<Tensor> of_t5 = encode_t5(plan, texts, trace);

  std::vector<PromptEmbeds> out;
  std::int64_t width = config().joint_attention_dim, batch = static_cast<std::int64_t>(plan.prompts);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    Tensor hidden = of_clip[i].hidden.empty() ? zeros({batch, kClipLength, width})
                                              : ops::concatenate(of_clip[i].hidden, 2);
    hidden = ops::pad(hidden, {0, 0, 0}, {0, 0, width - hidden.dim(2)});
    out.push_back({repeat_rows(ops::concatenate({hidden, of_t5[i]}, 1), plan.images_per_prompt),
                   repeat_rows(ops::concatenate(of_clip[i].pooled, 1), plan.images_per_prompt)});
  }
  return out;
}

ModelCall StableDiffusion3Pipeline::Parts::model_call(const Sd3Plan& plan, const PromptEmbeds& embeds,
                                                      const PromptEmbeds& negative, Trace* trace) const {
  auto upload_scalar = [&](double value) {
    return upload(context(), mesh(), {static_cast<float>(value)}, {}, DType::kF32);
  };
  PromptEmbeds both = embeds;
  if (plan.guided) {
    both = {ops::concatenate({negative.sequence, embeds.sequence}, 0),
            ops::concatenate({negative.pooled, embeds.pooled}, 0)};
  }
  Tensor scale = upload_scalar(plan.guidance_scale), skip_scale = upload_scalar(plan.skip_layers.scale);
  return [=, this, &plan](int step, const Tensor& x, const Tensor& time) {
    const models::Sd3Transformer& model = *transformer.model;
    Tensor input = plan.guided ? ops::concatenate({x, x}, 0) : x;
    Tensor out = model.forward(input, both.sequence, both.pooled, time);
    bool traced = step == 0 && trace != nullptr;
    if (traced) {
      trace->add("transformer_in_step0", input);
      trace->add("transformer_timestep_step0", time);
      trace->add("transformer_out_step0", out);
    }
    if (plan.guided) {
      std::vector<Tensor> halves = ops::split(out, 2, 0);
      out = guide(scale, halves[0], halves[1]);
      if (plan.skip_layers.applies(step, plan.steps)) {
        Tensor without = model.forward(x, embeds.sequence, embeds.pooled,
                                       ops::slice(time, 0, 0, plan.images()), plan.skip_layers.layers);
        Tensor push = ops::subtract(ops::cast(halves[1], DType::kF32), ops::cast(without, DType::kF32));
        out = ops::cast(ops::add(ops::cast(out, DType::kF32), ops::multiply(skip_scale, push)), dtype());
      }
    }
    if (traced) trace->add("noise_pred_guided_step0", out);
    return out;
  };
}

Denoised StableDiffusion3Pipeline::Parts::run(const Arguments& arguments, const Sd3Plan& plan,
                                              const PromptEmbeds& embeds, const PromptEmbeds& negative,
                                              const Hooks& hooks) const {
  Trace* trace = hooks.trace;
  Shape shape{plan.images(), config().in_channels, plan.latent_height, plan.latent_width};
  Tensor latents = arguments.latents
                       ? given_latents(context(), mesh(), *arguments.latents, shape, dtype())
                       : drawn_latents(context(), mesh(), arguments.seeds, shape, dtype(), trace);
  std::int64_t tokens = plan.latent_height / config().patch_size * (plan.latent_width / config().patch_size);
  schedulers::Schedule schedule = schedulers::flow_match_schedule(
      scheduler, plan.steps, arguments.sigmas, schedulers::calculate_shift(scheduler, tokens));
  if (trace != nullptr) {
    trace_start(*trace, latents, schedule);
    trace->add("prompt_embeds", embeds.sequence);
    trace->add("pooled_prompt_embeds", embeds.pooled);
    if (plan.guided) {
      trace->add("negative_prompt_embeds", negative.sequence);
      trace->add("negative_pooled_prompt_embeds", negative.pooled);
    }
  }
  DeviceSchedule on_device = upload_schedule(context(), mesh(), schedule.timesteps, schedule.timesteps,
                                             schedule.sigmas, (plan.guided ? 2 : 1) * plan.images());
  ModelCall call = model_call(plan, embeds, negative, trace);
  return denoise(context(), latents, on_device, 0, plan.steps, call, schedulers::euler_step, hooks);
}

Result StableDiffusion3Pipeline::generate(const Arguments& arguments, const Hooks& hooks) const {
  const Parts& p = *parts_;
  Sd3Plan plan = sd3_plan(arguments, p.folder, p.limits());
  std::vector<PromptEmbeds> embeds;
  return run_stages(
      residence_, p.transformer, p.vae, plan, sd3_settings(arguments, plan), hooks,
      {.encode = [&] { embeds = p.encode(plan, hooks.trace); },
       .denoise = [&] { return p.run(arguments, plan, embeds.front(), embeds.back(), hooks); },
       .decode = [&](const Tensor& latents) { return decode_latents(*p.vae.model, latents, hooks.trace); }});
}

}  // namespace tessera::pipelines
