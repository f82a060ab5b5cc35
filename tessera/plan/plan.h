#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/plan/chip.h"
#include "tessera/plan/components.h"

// What a TPU would need for a model, and how fast it can be at best, from the TPU compiler without a TPU.
namespace tessera::plan {

// Whether all components stay on the devices, or each comes from the host for the time that it runs.
enum class Residence { kAll, kOffload };

// A lower bound of the time that something takes, and what sets it.
struct Bound {
  double seconds = 0;
  std::string_view by;  // "operations", "memory", "links"
};

struct Plan {
  std::string model, topology;
  Chip chip;
  int tensor_parallel = 1;
  std::vector<ComponentPlan> components;  // for one of the devices
  // The smallest number of ranks that fits; none where none up to kMostRanks does.
  static constexpr int kMostRanks = 64;
  std::optional<int> min_ranks, min_ranks_offload;

  // Bytes that a device has to hold at most.
  std::int64_t bytes(Residence residence) const;
  bool fits(Residence residence) const { return bytes(residence) <= chip.memory_bytes; }
  std::int64_t weight_bytes() const;
  // Bytes that each device sends to others in one call: 2 (N - 1) / N of what its all-reduces add up, which
  // no way to do it on N ranks can be below.
  double link_bytes(const ComponentPlan& component) const;
  // The largest of operations, bytes of memory and bytes over links, each over what the chip has at most.
  Bound bound_of_call(const ComponentPlan& component) const;
  // All calls of all components, and uploads where they are needed.
  double bound_seconds_per_image(Residence residence) const;
  std::string advice() const;
};

// What make_plan does besides.
struct PlanHooks {
  std::function<void(const std::string&)> progress;                // a line for what takes long
  std::function<void(const std::vector<KeyedProgram>&)> programs;  // all that were compiled
};

// Compiles every component. `topology` by any of its names. Throws kNotFound without libtpu, kInvalidArgument
// for a topology that it refuses, for more ranks than that has, and for ranks that cannot share the model
// out.
Plan make_plan(const ModelFacts& model, const Request& request, const std::string& topology,
               const PlanHooks& hooks = {});

nlohmann::ordered_json to_json(const Plan& plan);
std::string to_table(const Plan& plan);

}  // namespace tessera::plan
