#include "tessera/models/mistral3.h"

#include "tessera/base/error.h"

namespace tessera::models {
namespace {

// Published files say language_model.model.layers..., those of newer Transformers
// model.language_model.layers....
nn::Scope text_model_scope(const nn::Scope& scope) {
  for (const char* ignored : {"vision_tower.", "multi_modal_projector.", "language_model.lm_head.",
                              "lm_head.", "model.vision_tower.", "model.multi_modal_projector."}) {
    scope.ignore(ignored);
  }
  nn::Scope newer = scope / "model" / "language_model";
  return newer.has("embed_tokens.weight") ? newer : scope / "language_model" / "model";
}

}  // namespace

Mistral3Config Mistral3Config::from_json(const nn::Config& config) {
  nn::Config text = config.object("text_config");
  if (text.has("sliding_window"))
    fail(ErrorCode::kUnimplemented, "{}: 'sliding_window' is not supported", text.what());
  return {DecoderConfig::from_json(text)};
}

Mistral3TextModel::Mistral3TextModel(const Mistral3Config& config, const nn::Scope& scope)
    : DecoderModel("Mistral3ForConditionalGeneration", config, text_model_scope(scope)) {}

}  // namespace tessera::models
