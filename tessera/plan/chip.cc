#include "tessera/plan/chip.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/quote.h"

namespace tessera::plan {
namespace {

struct Speed {
  std::string_view kind;
  double flops, bytes_per_second, link_bytes_per_second;
};
// From Google Cloud's pages on TPU v5e, v6e and TPU7x: bf16 and memory of a device, and half of what a chip's
// links carry in both directions.
constexpr std::array kSpeeds{Speed{"TPU v5 lite", 197e12, 819e9, 200e9},
                             Speed{"TPU v6 lite", 918e12, 1638e9, 400e9},
                             Speed{"TPU7x", 1153.5e12, 3690e9, 600e9}};

// Names of topologies that were tried, each with its other name.
constexpr const char* kNames =
    "v6e:1x1 (v6e-1), v6e:2x2 (v6e-4), v6e:2x4 (v6e-8), v6e:4x4 (v6e-16), v5e:1x1 (v5e-1), v5e:2x2 (v5e-4), "
    "v5e:2x4 (v5e-8), tpu7x:1x1x1 (v7x-2), tpu7x:2x2x1 (v7x-8), tpu7x:2x2x2 (v7x-16)";

struct Slice {
  int count;
  const char* shape;
};
// As Google Cloud counts them: chips of v5e and v6e, cores of v7x (two a chip, each a device).
constexpr std::array kPlanes{Slice{1, "1x1"},  Slice{4, "2x2"},  Slice{8, "2x4"},    Slice{16, "4x4"},
                             Slice{32, "4x8"}, Slice{64, "8x8"}, Slice{128, "8x16"}, Slice{256, "16x16"}};
constexpr std::array kCubes{Slice{2, "1x1x1"},  Slice{8, "2x2x1"},   Slice{16, "2x2x2"}, Slice{32, "2x2x4"},
                            Slice{64, "2x4x4"}, Slice{128, "4x4x4"}, Slice{256, "4x4x8"}};

struct Family {
  std::string_view name, libtpu;
  std::span<const Slice> slices;
};
constexpr std::array kFamilies{Family{"v6e", "v6e", kPlanes}, Family{"v5e", "v5e", kPlanes},
                               Family{"v5litepod", "v5e", kPlanes}, Family{"v7x", "tpu7x", kCubes},
                               Family{"tpu7x", "tpu7x", kCubes}};

}  // namespace

std::string topology_name(const std::string& name) {
  for (const Family& family : kFamilies) {
    if (!name.starts_with(family.name) || name.size() <= family.name.size()) continue;
    std::string rest = name.substr(family.name.size() + 1);
    char separator = name[family.name.size()];
    if (separator == ':') return fmt::format("{}:{}", family.libtpu, rest);
    if (separator != '-') continue;
    for (const Slice& slice : family.slices) {
      if (rest == std::to_string(slice.count)) return fmt::format("{}:{}", family.libtpu, slice.shape);
    }
  }
  return name;
}

std::shared_ptr<const pjrt::Topology> find_topology(const pjrt::Plugin& plugin, const std::string& name) {
  std::string known = topology_name(name);
  pjrt::NamedValues options;
  // Machines of eight chips; libtpu would take them for two of four.
  if (known.ends_with(":2x4")) options["chips_per_host_bounds"] = std::vector<std::int64_t>{2, 4, 1};
  try {
    return plugin.topology(known, options);
  } catch (const Error& e) {
    invalid_argument("libtpu refuses the topology {} ({}); names that work: {}", quote(name),
                     quote(e.what(), 400), kNames);
  }
}

Chip chip_of(const pjrt::Topology& topology) {
  const pjrt::DeviceInfo& device = topology.devices().at(0);
  Chip chip;
  chip.kind = device.kind;
  chip.devices = static_cast<int>(topology.devices().size());
  auto limit = device.attributes.find("device_memory_bytes_limit");
  if (limit != device.attributes.end() && std::holds_alternative<std::int64_t>(limit->second))
    chip.memory_bytes = std::get<std::int64_t>(limit->second);
  // Devices of one chip are at one place.
  if (auto place = device.attributes.find("coords"); place != device.attributes.end()) {
    chip.devices_per_chip =
        static_cast<int>(std::ranges::count_if(topology.devices(), [&](const pjrt::DeviceInfo& other) {
          auto its = other.attributes.find("coords");
          return its != other.attributes.end() && its->second == place->second;
        }));
  }
  for (const Speed& s : kSpeeds) {
    if (!chip.kind.starts_with(s.kind)) continue;
    chip.flops = s.flops;
    chip.bytes_per_second = s.bytes_per_second;
    chip.link_bytes_per_second = s.link_bytes_per_second;
    return chip;
  }
  fail(ErrorCode::kUnimplemented, "the speed of a '{}' is not known; topologies that work: {}", chip.kind,
       kNames);
}

}  // namespace tessera::plan
