#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/models/autoencoder_kl.h"
#include "tessera/models/autoencoder_kl_flux2.h"
#include "tessera/models/clip_text.h"
#include "tessera/models/flux2_transformer.h"
#include "tessera/models/flux_transformer.h"
#include "tessera/models/mistral3.h"
#include "tessera/models/qwen3.h"
#include "tessera/models/sd3_transformer.h"
#include "tessera/models/t5_encoder.h"
#include "tessera/runtime/context.h"

// One call of a component alone, as its pipeline makes it, on input from anywhere: random numbers to time it,
// shapes to plan it.
namespace tessera::pipelines {

// The hidden states that FLUX.2's transformers take of their text encoders.
inline constexpr std::array kMistral3OutLayers{10, 20, 30};
inline constexpr std::array kQwen3OutLayers{9, 18, 27};

// The sizes of a call.
struct CallSizes {
  std::int64_t height = 512, width = 512;  // of the picture, pixels
  std::int64_t batch = 1;
  // Of a text encoder's input, or of what a transformer gets from all of them. Not given: 333 (as Stable
  // Diffusion 3.5 has with its defaults), or as many as the text encoder can take.
  std::optional<std::int64_t> text_tokens = {};
};

// Where the input of a call comes from.
class CallInputs {
 public:
  virtual ~CallInputs() = default;
  virtual Context& context() const = 0;
  virtual const graph::MeshPtr& mesh() const = 0;
  // In the dtype of the component's weights.
  virtual Tensor values(const Shape& shape) = 0;
  // f32 [batch]: a time or a guidance of about that value.
  virtual Tensor numbers(float value, std::int64_t batch) = 0;
  virtual std::vector<std::int32_t> ids(std::int64_t count, std::int64_t vocab_size) = 0;
};

// Makes the input; the function that is returned does one call of the model, which outlives it, and returns
// (the last of) its results. Throws kInvalidArgument for sizes that the model cannot take.
using ComponentCall = std::function<Tensor()>;
ComponentCall prepare_call(const models::FluxTransformer& model, const CallSizes& sizes, CallInputs& inputs);
ComponentCall prepare_call(const models::Flux2Transformer& model, const CallSizes& sizes, CallInputs& inputs);
ComponentCall prepare_call(const models::Sd3Transformer& model, const CallSizes& sizes, CallInputs& inputs);
ComponentCall prepare_call(const models::AutoencoderKlDecoder& model, const CallSizes& sizes,
                           CallInputs& inputs);
ComponentCall prepare_call(const models::AutoencoderKlFlux2Decoder& model, const CallSizes& sizes,
                           CallInputs& inputs);
ComponentCall prepare_call(const models::ClipTextModel& model, const CallSizes& sizes, CallInputs& inputs);
ComponentCall prepare_call(const models::T5Encoder& model, const CallSizes& sizes, CallInputs& inputs);
ComponentCall prepare_call(const models::Mistral3TextModel& model, const CallSizes& sizes,
                           CallInputs& inputs);
ComponentCall prepare_call(const models::Qwen3TextModel& model, const CallSizes& sizes, CallInputs& inputs);

// Lays down in `store` which weights that call needs: of FLUX.2's text encoders only some layers', of any
// other model all.
void want_what_is_called(const models::Mistral3TextModel& model, nn::ParameterStore& store);
void want_what_is_called(const models::Qwen3TextModel& model, nn::ParameterStore& store);
inline void want_what_is_called(const nn::Module&, nn::ParameterStore&) {}

// What a component is for.
enum class Role { kTextEncoder, kTransformer, kDecoder };

// A class of model that a component may have, by the name in model_index.json.
template <typename M, typename C>
struct ModelClass {
  using Model = M;
  using Config = C;
  std::string_view name;
  Role role;
};

// Calls visit(ModelClass<...>) for each class of model that there is. Another one is a prepare_call() and a
// line here.
template <typename F>
void for_each_model_class(F&& visit) {
  using namespace models;
  visit(ModelClass<FluxTransformer, FluxTransformerConfig>{"FluxTransformer2DModel", Role::kTransformer});
  visit(ModelClass<Flux2Transformer, Flux2TransformerConfig>{"Flux2Transformer2DModel", Role::kTransformer});
  visit(ModelClass<Sd3Transformer, Sd3TransformerConfig>{"SD3Transformer2DModel", Role::kTransformer});
  visit(ModelClass<AutoencoderKlDecoder, AutoencoderKlConfig>{"AutoencoderKL", Role::kDecoder});
  visit(
      ModelClass<AutoencoderKlFlux2Decoder, AutoencoderKlFlux2Config>{"AutoencoderKLFlux2", Role::kDecoder});
  visit(ModelClass<ClipTextModel, ClipTextConfig>{"CLIPTextModel", Role::kTextEncoder});
  visit(ModelClass<ClipTextModelWithProjection, ClipTextConfig>{"CLIPTextModelWithProjection",
                                                                Role::kTextEncoder});
  visit(ModelClass<T5Encoder, T5Config>{"T5EncoderModel", Role::kTextEncoder});
  visit(
      ModelClass<Mistral3TextModel, Mistral3Config>{"Mistral3ForConditionalGeneration", Role::kTextEncoder});
  visit(ModelClass<Qwen3TextModel, Qwen3Config>{"Qwen3ForCausalLM", Role::kTextEncoder});
}

}  // namespace tessera::pipelines
