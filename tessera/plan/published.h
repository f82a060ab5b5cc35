#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/checkpoint/model_folder.h"

namespace tessera::plan {

// What is known of a model without its weights.
struct ModelFacts {
  struct Component {
    std::string name, class_name;
    nlohmann::json config;
  };
  std::string name, pipeline_class;
  std::int64_t steps = 28;            // of an image, unless the user says otherwise
  std::vector<Component> components;  // text encoders, transformer, autoencoder
};

// The published models whose configs are built in: "flux.1-schnell", ...
std::vector<std::string> published_names();
std::optional<ModelFacts> published(std::string_view name);

// What a checkpoint's config files say; weights need not be there.
ModelFacts facts_of(const checkpoint::ModelFolder& folder);

}  // namespace tessera::plan
