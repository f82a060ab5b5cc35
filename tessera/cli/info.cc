#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/base/env.h"
#include "tessera/base/error.h"
#include "tessera/cli/common.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

bool has_weights(const checkpoint::Component& component) {
  return !component.name.starts_with("tokenizer") && !component.name.starts_with("scheduler") &&
         !component.name.ends_with("processor") && !component.name.ends_with("extractor");
}

// What is known of a component; an error in its weights becomes "problem".
json describe(const checkpoint::ModelFolder& folder, const checkpoint::Component& component) {
  json out{{"name", component.name}, {"library", component.library}, {"class", component.class_name}};
  if (!has_weights(component)) return out;
  try {
    checkpoint::TensorSource source = folder.source(component.name);
    std::int64_t parameters = 0;
    std::set<std::string> dtypes;
    for (const auto& tensor : source.tensors()) {
      parameters += tensor.shape.elements();
      dtypes.emplace(dtype_name(tensor.dtype));
    }
    out["tensors"] = source.size();
    out["parameters"] = parameters;
    out["bytes"] = source.stored_bytes();
    out["dtypes"] = dtypes;
    out["files"] = source.files().size();
  } catch (const Error& e) {
    out["problem"] = e.what();
  }
  return out;
}

void info(const std::string& model, bool as_json) {
  checkpoint::ModelFolder folder = open_model(model);
  json out{{"model", folder.path().string()},
           {"pipeline", folder.pipeline_class()},
           {"defaults", folder.defaults()},
           {"components", json::array()}};
  std::int64_t bytes = 0, parameters = 0;
  for (const std::string& name : folder.component_names()) {
    json component;
    try {
      component = describe(folder, folder.require_component(name));
    } catch (const Error& e) {
      component = {{"name", name}, {"problem", e.what()}};
    }
    bytes += component.value("bytes", std::int64_t{0});
    parameters += component.value("parameters", std::int64_t{0});
    out["components"].push_back(component);
  }
  out["bytes"] = bytes;
  out["parameters"] = parameters;
  if (as_json) return print_json(out);

  std::string text = fmt::format("{}\n{}\n\n", folder.path().string(), folder.pipeline_class());
  for (const json& c : out["components"]) {
    text += fmt::format("  {:<16} {:<32}", c["name"].get<std::string>(), c.value("class", ""));
    if (c.contains("bytes")) {
      std::string dtypes;
      for (const auto& d : c["dtypes"]) dtypes += (dtypes.empty() ? "" : "+") + d.get<std::string>();
      text += fmt::format(" {:>10.2f} M parameters {:>10} {}",
                          static_cast<double>(c["parameters"].get<std::int64_t>()) / 1e6,
                          format_bytes(c["bytes"].get<std::int64_t>()), dtypes);
    }
    if (c.contains("problem")) text += fmt::format(" ({})", c["problem"].get<std::string>());
    text += "\n";
  }
  text += fmt::format("\n  {:<49} {:>10.2f} M parameters {:>10}\n", "in all",
                      static_cast<double>(parameters) / 1e6, format_bytes(bytes));
  if (!folder.defaults().empty()) text += fmt::format("  defaults: {}\n", folder.defaults().dump());
  print_text(text);
}

}  // namespace

void add_info(CLI::App& app) {
  auto model = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  CLI::App* sub = app.add_subcommand("info", "Say what a checkpoint holds");
  sub->add_option("model", *model,
                  "Diffusers folder, or Hub id in the local cache (default: the demonstration model)");
  sub->add_flag("--json", *as_json, "As a JSON object");
  sub->callback([model, as_json] { info(*model, *as_json); });
}

}  // namespace tessera::cli
