#pragma once

#include "tessera/models/decoder_model.h"

namespace tessera::models {

struct Qwen3Config : DecoderConfig {
  static Qwen3Config from_json(const nn::Config& config);
};

// The text model of Transformers' Qwen3ForCausalLM; its head is left alone.
class Qwen3TextModel : public DecoderModel {
 public:
  Qwen3TextModel(const Qwen3Config& config, const nn::Scope& scope);
};

}  // namespace tessera::models
