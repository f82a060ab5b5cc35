#include "tessera/models/qwen3.h"

namespace tessera::models {
namespace {

nn::Scope text_model_scope(const nn::Scope& scope) {
  scope.ignore("lm_head.");
  return scope / "model";
}

}  // namespace

Qwen3Config Qwen3Config::from_json(const nn::Config& config) {
  Qwen3Config out{DecoderConfig::from_json(config)};
  out.head_norms = true;
  return out;
}

Qwen3TextModel::Qwen3TextModel(const Qwen3Config& config, const nn::Scope& scope)
    : DecoderModel("Qwen3ForCausalLM", config, text_model_scope(scope)) {}

}  // namespace tessera::models
