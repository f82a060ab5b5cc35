#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tessera/base/env.h"
#include "tessera/base/error.h"
#include "tessera/cli/common.h"
#include "tessera/pjrt/registry.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

json describe(const pjrt::PluginRegistry& registry, const std::string& name) {
  json out{{"name", name}};
  try {
    auto plugin = registry.load(name);
    out["plugin"] = plugin->path().string();
    out["pjrt_version"] = fmt::format("{}.{}", plugin->version().major, plugin->version().minor);
    auto client = plugin->create_client();
    out["platform"] = client->platform_name();
    out["devices"] = json::array();
    for (std::size_t i = 0; i < client->devices().size(); ++i) {
      const pjrt::DeviceInfo& device = client->devices()[i];
      json entry{{"index", i}, {"id", device.id}, {"kind", device.kind}};
      if (auto memory = client->memory_stats(static_cast<int>(i)); memory && memory->bytes_limit) {
        entry["memory_limit_bytes"] = *memory->bytes_limit;
      }
      out["devices"].push_back(entry);
    }
  } catch (const Error& e) {
    out["problem"] = e.what();
  }
  return out;
}

void devices(bool as_json) {
  pjrt::PluginRegistry registry;
  json out = json::array();
  std::string text;
  for (const std::string& name : pjrt::device_names()) {
    json d = describe(registry, name);
    out.push_back(d);
    if (d.contains("problem")) {
      text += fmt::format("{:<5} {}\n", name, d["problem"].get<std::string>());
      continue;
    }
    text += fmt::format("{:<5} {} (PJRT {})\n", name, d["plugin"].get<std::string>(),
                        d["pjrt_version"].get<std::string>());
    for (const json& device : d["devices"]) {
      text +=
          fmt::format("      {}:{} {}", name, device["index"].get<int>(), device["kind"].get<std::string>());
      if (device.contains("memory_limit_bytes")) {
        text += fmt::format(", {}", format_bytes(device["memory_limit_bytes"].get<std::int64_t>()));
      }
      text += "\n";
    }
  }
  if (as_json) return print_json(out);
  print_text(text);
}

}  // namespace

void add_devices(CLI::App& app) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App* sub = app.add_subcommand("devices", "List the devices and the plugins that serve them");
  sub->add_flag("--json", *as_json, "As a JSON list");
  sub->callback([as_json] { devices(*as_json); });
}

}  // namespace tessera::cli
