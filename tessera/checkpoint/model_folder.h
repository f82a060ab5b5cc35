#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/checkpoint/tensor_source.h"

namespace tessera::checkpoint {

// One entry of model_index.json, as in "vae": ["diffusers", "AutoencoderKL"].
struct Component {
  std::string name;
  std::string library;
  std::string class_name;
  std::filesystem::path folder;
};

// A checkpoint in the Diffusers folder layout: model_index.json and a folder for each component. A value;
// copies share what was read. Every function that reads throws kNotFound for a missing file or folder and
// kDataLoss for a damaged one, naming it.
class ModelFolder {
 public:
  // A folder, or else a Hub id "org/name" looked up in the local Hub cache (see find_in_hub_cache). An
  // existing folder wins. Throws kNotFound, saying which places were looked at.
  static ModelFolder open(const std::string& path_or_hub_id);

  const std::filesystem::path& path() const;
  // "_class_name" of model_index.json, as in "FluxPipeline".
  const std::string& pipeline_class() const;
  // Names of the components that are present (not null), in alphabetical order.
  std::vector<std::string> component_names() const;
  // Nothing if model_index.json does not name it or says null; kNotFound if it names it but its folder is
  // missing.
  std::optional<Component> component(std::string_view name) const;
  // As component(), but an absent one is kNotFound too.
  Component require_component(std::string_view name) const;
  // The JSON object that configures a component: scheduler_config.json for a scheduler, tokenizer_config.json
  // for a tokenizer or processor, else config.json.
  nlohmann::json config(std::string_view name) const;
  // The weights of a component.
  TensorSource source(std::string_view name) const;
  // The whole of model_index.json: pipelines keep settings there ("is_distilled").
  const nlohmann::json& index() const;
  // "defaults" of tessera.json, an object that stands in for options that are not given; empty if there is
  // none. Keys (all optional): height, width, num_inference_steps, max_sequence_length (integers > 0),
  // guidance_scale, true_cfg_scale (numbers >= 0).
  const nlohmann::json& defaults() const;

 private:
  struct Content;
  explicit ModelFolder(std::shared_ptr<const Content> content) : content_(std::move(content)) {}

  std::shared_ptr<const Content> content_;
};

// The folder of the Hub cache, found as huggingface_hub does (a leading ~ is $HOME): HF_HUB_CACHE, else
// HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub.
std::filesystem::path hub_cache_folder();

// The snapshot that the branch "main" of org/name points to in the Hub cache: models--org--name/refs/main
// holds the hash, snapshots/<hash> the files. Nothing is downloaded. Throws kInvalidArgument for an id that
// is not org/name, kNotFound, naming the place, if it is not there, and kDataLoss for a reference that is no
// plain name.
std::filesystem::path find_in_hub_cache(const std::string& id);

}  // namespace tessera::checkpoint
