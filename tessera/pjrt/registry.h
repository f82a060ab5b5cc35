#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/pjrt/pjrt.h"

namespace tessera::pjrt {

// Finds the plugin that serves a device name. A name ("cpu", "tpu", "cuda") and the platform behind it are
// separate: TESSERA_PJRT_TPU may point at a CPU plugin.
//
// Places, in this order: register_plugin; the environment (TESSERA_PJRT_CPU, TESSERA_PJRT_TPU,
// TPU_LIBRARY_PATH, TESSERA_PJRT_CUDA); third_party/plugins of the build, and beside the program
// (../lib/tessera, ./plugins); known install places. TESSERA_PLUGIN_AUTOLOAD=0 leaves the first only.
class PluginRegistry {
 public:
  // Serves `device` from now on.
  void register_plugin(std::string_view device, std::filesystem::path path);
  // The file for `device`, if one of the places has it; nothing is loaded. A place that was named by hand
  // (registered or in the environment) counts alone: a wrong one is not passed over in silence.
  std::optional<std::filesystem::path> find(std::string_view device) const;
  // Whether trying to start the device is worth it: its plugin was named by hand, or there is one and the
  // machine shows such hardware. Loads nothing; never waits.
  bool promising(std::string_view device) const;
  // Loads it. Throws kNotFound that names the wrong place, or lists the places looked at and says how to
  // install the plugin.
  std::shared_ptr<const Plugin> load(std::string_view device) const;
  // The places in order, for messages.
  std::vector<std::filesystem::path> places(std::string_view device) const;

 private:
  // A place that was named by hand: where ("TESSERA_PJRT_CPU=", for messages), and the file.
  struct Named {
    std::string by;
    std::filesystem::path path;
  };
  std::vector<Named> named_places(std::string_view device) const;

  mutable std::mutex mutex_;
  std::vector<std::pair<std::string, std::filesystem::path>> registered_;
};

// A client of the plugin that serves `device`. Where a TPU cannot be had the error says why, as far as the
// machine shows it (tpu_host.h).
std::shared_ptr<const Client> create_client(const Plugin& plugin, std::string_view device,
                                            const NamedValues& options = {});

// TPU chips that this machine shows, by their device files; 0 elsewhere. Loads nothing.
int tpu_chips();

// The device names that Tessera knows: "cpu", "tpu", "cuda".
const std::vector<std::string>& device_names();

}  // namespace tessera::pjrt
