#include "tessera/pipelines/component_call.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::pipelines {
namespace {

constexpr std::int64_t kTextTokens = 333;

// Of the picture, in parts of `multiple` pixels.
struct Grid {
  std::int64_t rows, columns;
};

Grid grid(const CallSizes& sizes, std::int64_t multiple) {
  for (std::int64_t size : {sizes.height, sizes.width}) {
    if (size < multiple || size % multiple != 0)
      invalid_argument("a size of {} is no multiple of {}", size, multiple);
  }
  return {sizes.height / multiple, sizes.width / multiple};
}

template <typename Model>
ComponentCall decode_call(const Model& model, const CallSizes& sizes, CallInputs& inputs) {
  const auto& config = model.config();
  Grid latents = grid(sizes, config.scale_factor());
  Tensor z = inputs.values({sizes.batch, config.latent_channels, latents.rows, latents.columns});
  return [=, &model] { return model.decode(z); };
}

// Of the hidden states, those that a smaller model has too.
std::vector<int> clipped(std::span<const int> layers, const models::DecoderModel& model) {
  std::vector<int> out(layers.begin(), layers.end());
  for (int& layer : out) layer = std::min(layer, static_cast<int>(model.config().num_hidden_layers));
  return out;
}

ComponentCall decoder_call(const models::DecoderModel& model, std::span<const int> layers,
                           const CallSizes& sizes, CallInputs& inputs) {
  Shape shape{sizes.batch, sizes.text_tokens.value_or(kTextTokens)};
  auto ids = inputs.ids(shape.elements(), model.config().vocab_size);
  std::vector<std::int32_t> mask(ids.size(), 1);
  return [=, &model, &context = inputs.context(), mesh = inputs.mesh(), states = clipped(layers, model)] {
    return model.forward(context, mesh, ids, mask, shape, states).back();
  };
}

void want_layers(const models::DecoderModel& model, std::span<const int> layers, nn::ParameterStore& store) {
  int top = model.highest(clipped(layers, model));
  store.want([&model, top](std::string_view path) { return model.needs(path, top); });
}

}  // namespace

ComponentCall prepare_call(const models::FluxTransformer& model, const CallSizes& sizes, CallInputs& inputs) {
  const models::FluxTransformerConfig& config = model.config();
  auto [rows, columns] = grid(sizes, 16);
  std::int64_t text = sizes.text_tokens.value_or(kTextTokens);
  Tensor x = inputs.values({sizes.batch, rows * columns, config.in_channels});
  Tensor embeds = inputs.values({sizes.batch, text, config.joint_attention_dim});
  Tensor pooled = inputs.values({sizes.batch, config.pooled_projection_dim});
  Tensor time = inputs.numbers(0.5f, sizes.batch);
  Tensor guidance = config.guidance_embeds ? inputs.numbers(3.5f, sizes.batch) : Tensor();
  nn::RopeTables rope = model.rope_tables(inputs.context(), inputs.mesh(), text, rows, columns);
  return [=, &model] { return model.forward(x, embeds, pooled, time, guidance, rope); };
}

ComponentCall prepare_call(const models::Flux2Transformer& model, const CallSizes& sizes,
                           CallInputs& inputs) {
  const models::Flux2TransformerConfig& config = model.config();
  auto [rows, columns] = grid(sizes, 16);
  std::int64_t text = sizes.text_tokens.value_or(kTextTokens);
  Tensor x = inputs.values({sizes.batch, rows * columns, config.in_channels});
  Tensor embeds = inputs.values({sizes.batch, text, config.joint_attention_dim});
  Tensor time = inputs.numbers(0.5f, sizes.batch);
  Tensor guidance = config.guidance_embeds ? inputs.numbers(3.5f, sizes.batch) : Tensor();
  nn::RopeTables rope = model.rope_tables(inputs.context(), inputs.mesh(), text, rows, columns);
  return [=, &model] { return model.forward(x, embeds, time, guidance, rope); };
}

ComponentCall prepare_call(const models::Sd3Transformer& model, const CallSizes& sizes, CallInputs& inputs) {
  const models::Sd3TransformerConfig& config = model.config();
  auto [rows, columns] = grid(sizes, 16);
  Tensor x = inputs.values({sizes.batch, config.in_channels, 2 * rows, 2 * columns});
  Tensor embeds =
      inputs.values({sizes.batch, sizes.text_tokens.value_or(kTextTokens), config.joint_attention_dim});
  Tensor pooled = inputs.values({sizes.batch, config.pooled_projection_dim});
  Tensor time = inputs.numbers(500, sizes.batch);
  return [=, &model] { return model.forward(x, embeds, pooled, time); };
}

ComponentCall prepare_call(const models::AutoencoderKlDecoder& model, const CallSizes& sizes,
                           CallInputs& inputs) {
  return decode_call(model, sizes, inputs);
}

ComponentCall prepare_call(const models::AutoencoderKlFlux2Decoder& model, const CallSizes& sizes,
                           CallInputs& inputs) {
  return decode_call(model, sizes, inputs);
}

ComponentCall prepare_call(const models::ClipTextModel& model, const CallSizes& sizes, CallInputs& inputs) {
  std::int64_t most = model.config().max_position_embeddings, tokens = sizes.text_tokens.value_or(most);
  if (tokens > most)
    invalid_argument("{} text tokens are more than the {} that the encoder can take", tokens, most);
  Shape shape{sizes.batch, tokens};
  auto ids = inputs.ids(shape.elements(), model.config().vocab_size);
  return [=, &model, &context = inputs.context(), mesh = inputs.mesh()] {
    return model.forward(context, mesh, ids, shape).last_hidden_state;
  };
}

ComponentCall prepare_call(const models::T5Encoder& model, const CallSizes& sizes, CallInputs& inputs) {
  Shape shape{sizes.batch, sizes.text_tokens.value_or(kTextTokens)};
  auto ids = inputs.ids(shape.elements(), model.config().vocab_size);
  return [=, &model, &context = inputs.context(), mesh = inputs.mesh()] {
    return model.forward(context, mesh, ids, shape);
  };
}

ComponentCall prepare_call(const models::Mistral3TextModel& model, const CallSizes& sizes,
                           CallInputs& inputs) {
  return decoder_call(model, kMistral3OutLayers, sizes, inputs);
}

ComponentCall prepare_call(const models::Qwen3TextModel& model, const CallSizes& sizes, CallInputs& inputs) {
  return decoder_call(model, kQwen3OutLayers, sizes, inputs);
}

void want_what_is_called(const models::Mistral3TextModel& model, nn::ParameterStore& store) {
  want_layers(model, kMistral3OutLayers, store);
}

void want_what_is_called(const models::Qwen3TextModel& model, nn::ParameterStore& store) {
  want_layers(model, kQwen3OutLayers, store);
}

}  // namespace tessera::pipelines
