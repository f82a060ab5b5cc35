#include "tessera/pjrt/registry.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <cstdlib>

#include "tessera/base/env.h"
#include "tessera/base/error.h"
#include "tessera/pjrt/tpu_host.h"

namespace tessera::pjrt {
namespace {

namespace fs = std::filesystem;

// What is known of a device name: the environment that points at its plugin, the plugin's usual file name,
// and how to get it.
struct Known {
  std::string_view device;
  std::vector<const char*> variables;
  std::string_view file;
  std::vector<fs::path> installed;
  std::string_view advice;
};

const std::vector<Known>& known_devices() {
  static const std::vector<Known> known{
      {"cpu",
       {"TESSERA_PJRT_CPU"},
       "pjrt_c_api_cpu_plugin.so",
       {},
       "run scripts/setup.sh, or set TESSERA_PJRT_CPU to a PJRT CPU plugin"},
      {"tpu",
       {"TESSERA_PJRT_TPU", "TPU_LIBRARY_PATH"},
       "libtpu.so",
       {"/lib/libtpu.so", "/usr/lib/libtpu.so"},
       "install the Python package libtpu and set TPU_LIBRARY_PATH to its libtpu.so"},
      {"cuda",
       {"TESSERA_PJRT_CUDA"},
       "xla_cuda_plugin.so",
       {},
       "install the Python package jax-cuda13-pjrt and set TESSERA_PJRT_CUDA to its xla_cuda_plugin.so"},
  };
  return known;
}

const Known& known_device(std::string_view device) {
  for (const Known& k : known_devices()) {
    if (k.device == device) return k;
  }
  std::string names;
  for (const Known& k : known_devices()) names.append(names.empty() ? "" : ", ").append(k.device);
  invalid_argument("'{}' is no device; the devices are {}", device, names);
}

bool autoload() { return env_flag("TESSERA_PLUGIN_AUTOLOAD").value_or(true); }

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool has_nvidia_device() {
  glob_t found{};
  bool any = glob("/dev/nvidia[0-9]*", GLOB_NOSORT, nullptr, &found) == 0;
  globfree(&found);
  return any;
}

// Settings that a plugin reads when it is loaded; those of the user win.
void prepare_environment(std::string_view device) {
  if (device != "tpu") return;
  setenv("TPU_MIN_LOG_LEVEL", "3", /*overwrite=*/0);
  // Away from a TPU machine libtpu would wait minutes for a metadata server.
  if (tpu_chips() > 0) return;
  setenv("TPU_SKIP_MDS_QUERY", "1", /*overwrite=*/0);
  // There is no chip here that a second process could take away.
  setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1", /*overwrite=*/0);
  // What that server would have said; without these it complains on the user's screen.
  setenv("TPU_ACCELERATOR_TYPE", "v6e-1", /*overwrite=*/0);
  setenv("TPU_WORKER_HOSTNAMES", "localhost", /*overwrite=*/0);
}

// Without what ends a sentence.
std::string_view strip_end(std::string_view text) {
  while (!text.empty() && (text.back() == '.' || text.back() == '\n' || text.back() == ' '))
    text.remove_suffix(1);
  return text;
}

}  // namespace

int tpu_chips() { return count_tpu_chips(); }

const std::vector<std::string>& device_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Known& k : known_devices()) out.emplace_back(k.device);
    return out;
  }();
  return names;
}

void PluginRegistry::register_plugin(std::string_view device, fs::path path) {
  known_device(device);
  std::lock_guard lock(mutex_);
  std::erase_if(registered_, [&](const auto& entry) { return entry.first == device; });
  registered_.emplace_back(device, std::move(path));
}

std::vector<PluginRegistry::Named> PluginRegistry::named_places(std::string_view device) const {
  const Known& known = known_device(device);
  std::vector<Named> out;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, path] : registered_) {
      if (name == device) out.push_back({fmt::format("the plugin registered for {}, ", device), path});
    }
  }
  if (!autoload()) return out;
  for (const char* variable : known.variables) {
    if (auto value = env(variable)) out.push_back({fmt::format("{}=", variable), *value});
  }
  return out;
}

std::vector<fs::path> PluginRegistry::places(std::string_view device) const {
  const Known& known = known_device(device);
  std::vector<fs::path> out;
  for (Named& named : named_places(device)) out.push_back(std::move(named.path));
  if (!autoload()) return out;
  out.push_back(fs::path(TESSERA_THIRD_PARTY_DIR) / "plugins" / known.file);
  std::error_code ignored;
  fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  if (!program.empty()) {
    out.push_back(program / "plugins" / known.file);
    out.push_back(program.parent_path() / "lib" / "tessera" / known.file);
  }
  out.insert(out.end(), known.installed.begin(), known.installed.end());
  return out;
}

std::optional<fs::path> PluginRegistry::find(std::string_view device) const {
  std::vector<fs::path> candidates = places(device);
  if (!named_places(device).empty()) candidates.resize(1);
  for (fs::path& path : candidates) {
    if (is_file(path)) return std::move(path);
  }
  return std::nullopt;
}

bool PluginRegistry::promising(std::string_view device) const {
  if (!find(device)) return false;
  if (!named_places(device).empty() || device == "cpu") return true;
  return device == "tpu" ? tpu_chips() > 0 : has_nvidia_device();
}

std::shared_ptr<const Plugin> PluginRegistry::load(std::string_view device) const {
  std::optional<fs::path> path = find(device);
  if (!path) {
    if (auto named = named_places(device); !named.empty()) {
      fail(ErrorCode::kNotFound, "{}{}: there is no such file", named[0].by, named[0].path.string());
    }
    std::string looked;
    for (const fs::path& place : places(device)) looked += (looked.empty() ? "" : ", ") + place.string();
    if (looked.empty()) looked = "nowhere, because TESSERA_PLUGIN_AUTOLOAD=0 and none was registered";
    fail(ErrorCode::kNotFound, "no plugin for the device {}; looked at {}; {}", device, looked,
         known_device(device).advice);
  }
  prepare_environment(device);
  return Plugin::load(*path);
}

std::shared_ptr<const Client> create_client(const Plugin& plugin, std::string_view device,
                                            const NamedValues& options) {
  try {
    return plugin.create_client(options);
  } catch (const Error& e) {
    if (device != "tpu") throw;
    std::string why = explain_tpu_host();
    if (why.empty()) throw;
    throw Error(e.code(), fmt::format("{}; {}", strip_end(e.what()), why));
  }
}

}  // namespace tessera::pjrt
