#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/base/env.h"
#include "tessera/base/error.h"
#include "tessera/cli/command_line.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/shared.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

// Settings worth seeing, of every kind of component; those that a config has are shown.
constexpr std::array kHighlights{
    "hidden_size",
    "d_model",
    "num_hidden_layers",
    "num_layers",
    "num_single_layers",
    "num_attention_heads",
    "num_heads",
    "attention_head_dim",
    "in_channels",
    "joint_attention_dim",
    "pooled_projection_dim",
    "guidance_embeds",
    "axes_dims_rope",
    "vocab_size",
    "max_position_embeddings",
    "block_out_channels",
    "latent_channels",
    "scaling_factor",
    "shift_factor",
    "sample_size",
    "shift",
    "use_dynamic_shifting",
    "base_shift",
    "max_shift",
    "num_train_timesteps",
    "model_max_length",
};

Json highlights(const nlohmann::json& config) {
  Json out = Json::object();
  for (const char* name : kHighlights) {
    auto it = config.find(name);
    if (it != config.end() && !it->is_null()) out[name] = *it;
  }
  return out;
}

bool has_weights(const checkpoint::Component& component) {
  static const std::array kWithout{"scheduler", "tokenizer", "processor", "feature_extractor"};
  return std::ranges::none_of(kWithout,
                              [&](const char* prefix) { return component.name.starts_with(prefix); });
}

Json weights(const checkpoint::ModelFolder& folder, const std::string& name) {
  checkpoint::TensorSource source = folder.source(name);
  Json out;
  std::int64_t parameters = 0;
  std::set<std::string> dtypes;
  for (const checkpoint::TensorView& tensor : source.tensors()) {
    parameters += tensor.shape.elements();
    dtypes.emplace(dtype_name(tensor.dtype));
  }
  out["tensors"] = source.size();
  out["parameters"] = parameters;
  out["dtypes"] = dtypes;
  out["bytes"] = source.stored_bytes();
  out["files"] = source.files().size();
  return out;
}

// A component as JSON; what is not there is said under "missing".
Json describe(const checkpoint::ModelFolder& folder, const std::string& name) {
  Json out{{"name", name}};
  try {
    checkpoint::Component component = folder.require_component(name);
    out["library"] = component.library;
    out["class"] = component.class_name;
    out["config"] = Json::object();
    out["config"] = highlights(folder.config(name));
    if (has_weights(component)) out["weights"] = weights(folder, name);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kNotFound) throw;
    out["missing"] = e.what();
  }
  return out;
}

std::string line_of(const Json& component) {
  std::string text = fmt::format("{:<16}{}", component["name"].get<std::string>(),
                                 component.value("class", std::string("?")));
  if (component.contains("weights")) {
    const Json& w = component["weights"];
    text +=
        fmt::format(", {} parameters, {}, {} in {} file(s)", with_commas(w["parameters"].get<std::int64_t>()),
                    fmt::join(w["dtypes"].get<std::vector<std::string>>(), " and "),
                    format_bytes(w["bytes"].get<std::int64_t>()), w["files"].get<int>());
  }
  if (component.contains("missing")) text += ", not here: " + component["missing"].get<std::string>();
  text += '\n';
  std::string settings;
  const Json config = component.value("config", Json::object());
  for (const auto& [name, value] : config.items()) {
    settings += (settings.empty() ? "" : ", ") + name + " " + value.dump();
  }
  return settings.empty() ? text : text + fmt::format("{:<16}{}\n", "", settings);
}

std::string text_of(const Json& info) {
  std::string text =
      fmt::format("{}: {}\n\n", info["model"].get<std::string>(), info["pipeline"].get<std::string>());
  for (const Json& component : info["components"]) text += line_of(component);
  text += fmt::format("\ntotal: {} parameters, {}\n", with_commas(info["parameters"].get<std::int64_t>()),
                      format_bytes(info["bytes"].get<std::int64_t>()));
  std::string defaults;
  for (const auto& [name, value] : info["defaults"].items()) {
    defaults += (defaults.empty() ? "" : ", ") + name + " " + value.dump();
  }
  if (!defaults.empty()) text += fmt::format("defaults (tessera.json): {}\n", defaults);
  return text;
}

}  // namespace

int run_info(const std::vector<std::string>& arguments) {
  CommandLine line("tessera info", "Says what a checkpoint holds.", "example:\n  tessera info models/demo\n");
  line.positional("MODEL",
                  "Diffusers folder, or Hub id in the local Hub cache (default: the demo checkpoint)");
  line.flag("--json", "print one JSON object");
  if (!line.parse(arguments)) return 0;

  checkpoint::ModelFolder folder = open_model(line.text("MODEL"));
  Json info{{"model", folder.path().string()}, {"pipeline", folder.pipeline_class()}};
  info["components"] = Json::array();
  std::int64_t parameters = 0, bytes = 0;
  for (const std::string& name : folder.component_names()) {
    Json component = describe(folder, name);
    if (component.contains("weights")) {
      parameters += component["weights"]["parameters"].get<std::int64_t>();
      bytes += component["weights"]["bytes"].get<std::int64_t>();
    }
    info["components"].push_back(std::move(component));
  }
  info["parameters"] = parameters;
  info["bytes"] = bytes;
  info["defaults"] = folder.defaults();
  if (line.given("json")) {
    print_json(info);
  } else {
    print(text_of(info));
  }
  return 0;
}

}  // namespace tessera::cli
