#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "tessera/base/env.h"
#include "tessera/base/error.h"
#include "tessera/cli/command_line.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/console.h"
#include "tessera/cli/shared.h"
#include "tessera/pjrt/registry.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

void add_client(Json& out, const pjrt::Client& client) {
  out["platform"] = client.platform_name();
  out["platform_version"] = console::one_line(client.platform_version());
  out["devices"] = Json::array();
  for (std::size_t i = 0; i < client.devices().size(); ++i) {
    const pjrt::DeviceInfo& device = client.devices()[i];
    Json entry{{"index", i}, {"id", device.id}, {"kind", device.kind}, {"description", device.text}};
    if (auto memory = client.memory_stats(static_cast<int>(i))) {
      entry["bytes_in_use"] = memory->bytes_in_use;
      if (memory->bytes_limit) entry["bytes_limit"] = *memory->bytes_limit;
    }
    out["devices"].push_back(std::move(entry));
  }
}

// What is known of a device name; "error" says why it cannot be used.
Json describe(const pjrt::PluginRegistry& registry, const std::string& name) {
  Json out{{"name", name}};
  try {
    std::shared_ptr<const pjrt::Plugin> plugin = registry.load(name);
    out["plugin"] = plugin->path().string();
    pjrt::Version version = plugin->version();
    out["pjrt_api"] = fmt::format("{}.{}", version.major, version.minor);
    add_client(out, *pjrt::create_client(*plugin, name));
  } catch (const Error& e) {
    out["error"] = console::one_line(e.what());
  }
  return out;
}

std::string text_of(const Json& device) {
  std::string name = device["name"].get<std::string>();
  if (!device.contains("plugin")) return fmt::format("{}: {}\n", name, device["error"].get<std::string>());
  std::string text = fmt::format("{}: {} (PJRT API {})\n", name, device["plugin"].get<std::string>(),
                                 device["pjrt_api"].get<std::string>());
  if (device.contains("error"))
    return text + fmt::format("  cannot be used: {}\n", device["error"].get<std::string>());
  text += fmt::format("  platform {}, {}\n", device["platform"].get<std::string>(),
                      device["platform_version"].get<std::string>());
  for (const Json& entry : device["devices"]) {
    text += fmt::format("  {}:{} {}", name, entry["index"].get<int>(), entry["kind"].get<std::string>());
    if (entry.contains("bytes_limit")) {
      text += fmt::format(", {} of memory, {} in use", format_bytes(entry["bytes_limit"].get<std::int64_t>()),
                          format_bytes(entry["bytes_in_use"].get<std::int64_t>()));
    }
    text += '\n';
  }
  return text;
}

}  // namespace

int run_devices(const std::vector<std::string>& arguments) {
  CommandLine line("tessera devices", "Lists the devices, and the plugins that serve them.",
                   "example:\n  TESSERA_PJRT_TPU=/opt/libtpu.so tessera devices\n");
  line.flag("--json", "print one JSON object");
  if (!line.parse(arguments)) return 0;

  pjrt::PluginRegistry registry;
  Json out{{"devices", Json::array()}};
  std::string text;
  for (const std::string& name : pjrt::device_names()) {
    Json device = describe(registry, name);
    text += text_of(device);
    out["devices"].push_back(std::move(device));
  }
  if (line.given("json")) {
    print_json(out);
  } else {
    print(text);
  }
  return 0;
}

}  // namespace tessera::cli
