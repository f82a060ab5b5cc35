#pragma once

#include "tessera/models/decoder_model.h"

namespace tessera::models {

struct Mistral3Config : DecoderConfig {
  // Reads the text_config of a Mistral3ForConditionalGeneration. Throws kUnimplemented for an attention
  // window.
  static Mistral3Config from_json(const nn::Config& config);
};

// The text model of Transformers' Mistral3ForConditionalGeneration. The vision tower, its projector and the
// head are left alone.
class Mistral3TextModel : public DecoderModel {
 public:
  Mistral3TextModel(const Mistral3Config& config, const nn::Scope& scope);
};

}  // namespace tessera::models
