#include "tessera/pipelines/lone_component.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>

#include "tessera/base/error.h"
#include "tessera/base/quote.h"
#include "tessera/base/random.h"
#include "tessera/models/autoencoder_kl.h"
#include "tessera/models/clip_text.h"
#include "tessera/models/flux_transformer.h"
#include "tessera/models/t5_encoder.h"
#include "tessera/ops/ops.h"
#include "tessera/pipelines/loading.h"

namespace tessera::pipelines {
namespace {

constexpr std::int64_t kTextTokens = 333;  // of Stable Diffusion 3.5 with its defaults

// Where the input goes, and random numbers for it.
struct Source {
  Context& context;
  graph::MeshPtr mesh;
  DType dtype;
  Generator generator{1};

  Tensor normal(const Shape& shape) {
    return ops::cast(context.from_f32(generator.randn(shape.elements()), shape, mesh), dtype);
  }
  Tensor constant(float value, std::int64_t batch) const {
    return context.from_f32(std::vector<float>(static_cast<std::size_t>(batch), value), {batch}, mesh);
  }
};

std::int64_t latent_side(const LoneInput& input, std::int64_t multiple) {
  if (input.size < multiple || input.size % multiple != 0)
    invalid_argument("a size of {} is no multiple of {}", input.size, multiple);
  return input.size / 8;
}

std::function<Tensor()> call_of(const models::FluxTransformer& model, const LoneInput& input,
                                Source& source) {
  const models::FluxTransformerConfig& config = model.config();
  std::int64_t side = latent_side(input, 16) / 2, text = input.text_tokens.value_or(kTextTokens);
  Tensor x = source.normal({input.batch, side * side, config.in_channels});
  Tensor embeds = source.normal({input.batch, text, config.joint_attention_dim});
  Tensor pooled = source.normal({input.batch, config.pooled_projection_dim});
  Tensor time = source.constant(0.5f, input.batch);
  Tensor guidance = config.guidance_embeds ? source.constant(3.5f, input.batch) : Tensor();
  nn::RopeTables rope = model.rope_tables(source.context, source.mesh, text, side, side);
  return [=, &model] { return model.forward(x, embeds, pooled, time, guidance, rope); };
}

std::function<Tensor()> call_of(const models::AutoencoderKlDecoder& model, const LoneInput& input,
                                Source& source) {
  std::int64_t factor = model.config().scale_factor();
  if (input.size < factor || input.size % factor != 0)
    invalid_argument("a size of {} is no multiple of {}", input.size, factor);
  std::int64_t side = input.size / factor;
  Tensor z = source.normal({input.batch, model.config().latent_channels, side, side});
  return [=, &model] { return model.decode(z); };
}

// Ids that are no special tokens, [B, tokens].
std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t vocab_size) {
  std::mt19937 random(1);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  auto range = static_cast<std::uint32_t>(std::max<std::int64_t>(1, vocab_size - 5));
  for (std::int32_t& id : ids)
    id = static_cast<std::int32_t>(std::min<std::int64_t>(vocab_size - 1, 3 + random() % range));
  return ids;
}

std::function<Tensor()> call_of(const models::T5Encoder& model, const LoneInput& input, Source& source) {
  Shape shape{input.batch, input.text_tokens.value_or(kTextTokens)};
  auto ids = random_ids(shape.elements(), model.config().vocab_size);
  return [=, &model, &context = source.context, mesh = source.mesh] {
    return model.forward(context, mesh, ids, shape);
  };
}

std::function<Tensor()> call_of(const models::ClipTextModel& model, const LoneInput& input, Source& source) {
  std::int64_t most = model.config().max_position_embeddings, tokens = input.text_tokens.value_or(most);
  if (tokens > most)
    invalid_argument("{} text tokens are more than the {} that the encoder can take", tokens, most);
  Shape shape{input.batch, tokens};
  auto ids = random_ids(shape.elements(), model.config().vocab_size);
  return [=, &model, &context = source.context, mesh = source.mesh] {
    return model.forward(context, mesh, ids, shape).last_hidden_state;
  };
}

template <typename Model, typename Config>
class Alone : public LoneComponent {
 public:
  Alone(const checkpoint::ModelFolder& folder, const std::string& name)
      : class_name_(folder.require_component(name).class_name),
        loaded_(Loader(folder).model<Model, Config>(name)) {}
  Component& component() override { return loaded_; }
  const std::string& class_name() const override { return class_name_; }
  std::function<Tensor()> call(const LoneInput& input, Context& context, const graph::MeshPtr& mesh,
                               DType dtype) const override {
    Source source{context, mesh, dtype};
    return call_of(*loaded_.model, input, source);
  }

 private:
  std::string class_name_;
  Loaded<Model> loaded_;
};

template <typename Model, typename Config>
std::unique_ptr<LoneComponent> alone(const checkpoint::ModelFolder& folder, const std::string& name) {
  return std::make_unique<Alone<Model, Config>>(folder, name);
}

struct Class {
  const char* name;
  std::unique_ptr<LoneComponent> (*load)(const checkpoint::ModelFolder&, const std::string&);
};

// Every class of model that a component may have. Another model is a call_of() and a line here.
constexpr Class kClasses[] = {
    {"FluxTransformer2DModel", alone<models::FluxTransformer, models::FluxTransformerConfig>},
    {"AutoencoderKL", alone<models::AutoencoderKlDecoder, models::AutoencoderKlConfig>},
    {"T5EncoderModel", alone<models::T5Encoder, models::T5Config>},
    {"CLIPTextModel", alone<models::ClipTextModel, models::ClipTextConfig>},
};

}  // namespace

std::unique_ptr<LoneComponent> LoneComponent::load(const checkpoint::ModelFolder& folder,
                                                   const std::string& name) {
  std::vector<std::string> names = folder.component_names();
  if (std::ranges::find(names, name) == names.end()) {
    invalid_argument("{} has no component {}; its components are {}", folder.path().string(), quote(name),
                     fmt::join(names, ", "));
  }
  std::string class_name = folder.require_component(name).class_name, known;
  for (const Class& c : kClasses) {
    if (class_name == c.name) return c.load(folder, name);
    known += (known.empty() ? "" : ", ") + std::string(c.name);
  }
  fail(ErrorCode::kUnimplemented,
       "{}: the component {} is of the class {}, which cannot be run by itself; those are {}",
       folder.path().string(), name, quote(class_name), known);
}

}  // namespace tessera::pipelines
