#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/pjrt/pjrt.h"

namespace tessera::plan {

// A chip, as the compiler's topology and its maker's data sheet describe it. A v7x chip is two devices; all
// but the links are those of one.
struct Chip {
  std::string kind;
  std::int64_t memory_bytes = 0;          // of a device
  int devices = 0;                        // in the topology
  int devices_per_chip = 1;               // that share its links
  double flops = 0;                       // a second, bf16
  double bytes_per_second = 0;            // of its memory
  double link_bytes_per_second = 0;       // out of a chip, over all its links to other chips together
  double upload_bytes_per_second = 64e9;  // from the host, as PCIe 5.0 with 16 lanes has at most
};

// libtpu's name for what Google Cloud calls "v6e-8", "v5e-4", "v5litepod-4", "v7x-8" or "tpu7x-8", and for
// "v7x:2x2x1"; other names as they are.
std::string topology_name(const std::string& name);

// The topology by any of its names. Throws kInvalidArgument, with names that work, if the plugin refuses it.
std::shared_ptr<const pjrt::Topology> find_topology(const pjrt::Plugin& plugin, const std::string& name);

// Throws kUnimplemented for a kind whose speed is not known.
Chip chip_of(const pjrt::Topology& topology);

}  // namespace tessera::plan
