#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tessera/plan/components.h"

// What a TPU would need for a model, and how fast it can be at best, from the TPU compiler without a TPU.
namespace tessera::plan {

// A chip, as the compiler's topology and its maker's data sheet describe it. A v7x chip is two devices, and
// the numbers are those of one.
struct Chip {
  std::string kind;
  std::int64_t memory_bytes = 0;
  int devices = 0;              // in the topology
  double flops = 0;             // a second, bf16
  double bytes_per_second = 0;  // of its memory
};

// libtpu's name for what Google Cloud calls "v6e-8", "v5e-4", "v5litepod-4", "v7x-8" or "tpu7x-8", and for
// "v7x:2x2x1"; other names as they are.
std::string topology_name(const std::string& name);
// Throws kUnimplemented for a kind whose speed is not known.
Chip chip_of(const pjrt::Topology& topology);

struct Plan {
  std::string model, topology;
  Chip chip;
  std::vector<ComponentPlan> components;

  // Bytes that one chip has to hold when all components stay, and when each comes only while it runs.
  std::int64_t resident_bytes(std::int64_t shares = 1) const;
  std::int64_t offload_bytes(std::int64_t shares = 1) const;
  std::int64_t weight_bytes() const;
  // The smallest number of chips that would do if weights were shared out evenly and everything else stayed
  // as it is on one: an estimate.
  std::int64_t min_chips(bool offload) const;
  // Lower bounds: the larger of operations over the chip's peak and bytes over its memory's bandwidth.
  double bound_seconds_per_call(const ComponentPlan& component) const;
  double bound_seconds_per_image() const;
  std::string advice() const;
};

// Compiles every component. `topology` by any of its names. Throws kNotFound without libtpu,
// kInvalidArgument for a topology that it refuses.
Plan make_plan(const ModelFacts& model, const Request& request, const std::string& topology,
               const std::function<void(const std::string&)>& progress);

nlohmann::ordered_json to_json(const Plan& plan);
std::string to_table(const Plan& plan);

}  // namespace tessera::plan
