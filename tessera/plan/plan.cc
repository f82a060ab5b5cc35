#include "tessera/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>

#include "tessera/base/env.h"
#include "tessera/base/error.h"
#include "tessera/base/quote.h"
#include "tessera/pjrt/registry.h"

namespace tessera::plan {
namespace {

struct Speed {
  std::string_view kind;
  double flops, bytes_per_second;
};
// Per device, from the makers' data sheets (bf16, dense).
constexpr std::array kSpeeds{Speed{"TPU v5 lite", 197e12, 819e9},  Speed{"TPU v5e", 197e12, 819e9},
                             Speed{"TPU v6 lite", 918e12, 1638e9}, Speed{"TPU v6e", 918e12, 1638e9},
                             Speed{"TPU7x", 1153.5e12, 3690e9},    Speed{"TPU v7", 1153.5e12, 3690e9}};

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

Chip chip_of(const pjrt::Topology& topology) {
  const pjrt::DeviceInfo& device = topology.devices().at(0);
  Chip chip;
  chip.kind = device.kind;
  chip.devices = static_cast<int>(topology.devices().size());
  auto limit = device.attributes.find("device_memory_bytes_limit");
  if (limit != device.attributes.end() && std::holds_alternative<std::int64_t>(limit->second))
    chip.memory_bytes = std::get<std::int64_t>(limit->second);
  for (const Speed& s : kSpeeds) {
    if (!chip.kind.starts_with(s.kind)) continue;
    chip.flops = s.flops;
    chip.bytes_per_second = s.bytes_per_second;
    return chip;
  }
  fail(ErrorCode::kUnimplemented, "the speed of a '{}' is not known; topologies that work: {}", chip.kind,
       kNames);
}

std::int64_t Plan::weight_bytes() const {
  std::int64_t sum = 0;
  for (const ComponentPlan& c : components) sum += c.weight_bytes;
  return sum;
}

std::int64_t Plan::resident_bytes(std::int64_t shares) const {
  std::int64_t working = 0;
  for (const ComponentPlan& c : components) working = std::max(working, c.working_bytes);
  return weight_bytes() / shares + working;
}

std::int64_t Plan::offload_bytes(std::int64_t shares) const {
  std::int64_t most = 0;
  for (const ComponentPlan& c : components) most = std::max(most, c.weight_bytes / shares + c.working_bytes);
  return most;
}

std::int64_t Plan::min_chips(bool offload) const {
  for (std::int64_t n = 1; n <= 256; n *= 2) {
    if ((offload ? offload_bytes(n) : resident_bytes(n)) <= chip.memory_bytes) return n;
  }
  return 0;
}

double Plan::bound_seconds_per_call(const ComponentPlan& c) const {
  return std::max(c.flops / chip.flops, c.bytes_accessed / chip.bytes_per_second);
}

double Plan::bound_seconds_per_image() const {
  double sum = 0;
  for (const ComponentPlan& c : components) sum += static_cast<double>(c.calls) * bound_seconds_per_call(c);
  return sum;
}

std::string Plan::advice() const {
  std::int64_t margin = chip.memory_bytes - resident_bytes();
  if (margin >= 0) return fmt::format("fits resident on one chip, with {} to spare", format_bytes(margin));
  margin = chip.memory_bytes - offload_bytes();
  std::string resident = fmt::format("does not fit resident on one chip ({} too much)",
                                     format_bytes(resident_bytes() - chip.memory_bytes));
  if (margin >= 0) {
    return fmt::format("{}; fits with --offload model, with {} to spare; {} go from the host for each image",
                       resident, format_bytes(margin), format_bytes(weight_bytes()));
  }
  return fmt::format(
      "{}, nor with --offload model ({} too much): it would take about {} chips with offload, {} resident",
      resident, format_bytes(-margin), min_chips(true), min_chips(false));
}

Plan make_plan(const ModelFacts& model, const Request& request, const std::string& topology,
               const std::function<void(const std::string&)>& progress) {
  std::shared_ptr<const pjrt::Plugin> plugin = pjrt::PluginRegistry().load("tpu");
  Plan plan{model.name, topology_name(topology), {}, {}};
  std::shared_ptr<const pjrt::Topology> machine;
  try {
    machine = plugin->topology(plan.topology);
  } catch (const Error& e) {
    invalid_argument("libtpu refuses the topology {} ({}); names that work: {}", quote(topology),
                     quote(e.what(), 400), kNames);
  }
  plan.chip = chip_of(*machine);
  // Ids and tables that models upload go to a device that is always there.
  Context context;
  context.mesh();
  Paper paper(machine, progress);
  for (const ModelFacts::Component& component : model.components) {
    plan.components.push_back(plan_component(model, component, request, context, paper));
  }
  return plan;
}

nlohmann::ordered_json to_json(const Plan& plan) {
  using Json = nlohmann::ordered_json;
  Json out{{"model", plan.model},    {"topology", plan.topology},
           {"chip", plan.chip.kind}, {"memory_limit_bytes", plan.chip.memory_bytes},
           {"tensor_parallel", 1},   {"components", Json::array()}};
  for (const ComponentPlan& c : plan.components) {
    Json programs = Json::array();
    for (const PlannedProgram& p : c.programs) {
      programs.push_back({{"where", p.where},
                          {"calls", p.calls},
                          {"operations", p.operations},
                          {"scratch_bytes", p.memory.temp},
                          {"code_bytes", p.memory.code},
                          {"flops", p.flops},
                          {"bytes_accessed", p.bytes},
                          {"compile_seconds", p.compile_seconds}});
    }
    out["components"].push_back({{"name", c.name},
                                 {"class", c.class_name},
                                 {"weight_bytes", c.weight_bytes},
                                 {"not_loaded", c.not_loaded},
                                 {"scratch_bytes", c.scratch_bytes},
                                 {"peak_bytes", c.peak_bytes()},
                                 {"flops", c.flops},
                                 {"bytes_accessed", c.bytes_accessed},
                                 {"ici_bytes", 0},
                                 {"calls", c.calls},
                                 {"bound_seconds_per_call", plan.bound_seconds_per_call(c)},
                                 {"compile_seconds", c.compile_seconds},
                                 {"programs", std::move(programs)}});
  }
  out["resident_bytes"] = {{"none", plan.resident_bytes()}, {"model", plan.offload_bytes()}};
  out["fits"] = {{"none", plan.resident_bytes() <= plan.chip.memory_bytes},
                 {"model", plan.offload_bytes() <= plan.chip.memory_bytes}};
  out["min_tensor_parallel"] = {{"none", plan.min_chips(false)}, {"model", plan.min_chips(true)}};
  out["bound_seconds_per_image"] = plan.bound_seconds_per_image();
  out["advice"] = plan.advice();
  return out;
}

std::string to_table(const Plan& plan) {
  std::string out = fmt::format("{} on one {} of {} ({} of memory)\n\n", plan.model, plan.chip.kind,
                                plan.topology, format_bytes(plan.chip.memory_bytes));
  out += fmt::format("{:<16}{:>11}{:>11}{:>11}{:>9}{:>11}{:>7}{:>13}\n", "component", "weights", "scratch",
                     "peak", "TFLOP", "moved", "calls", "bound s/call");
  for (const ComponentPlan& c : plan.components) {
    out += fmt::format(
        "{:<16}{:>11}{:>11}{:>11}{:>9.2f}{:>11}{:>7}{:>13.4f}\n", c.name, format_bytes(c.weight_bytes),
        format_bytes(c.scratch_bytes), format_bytes(c.peak_bytes()), c.flops / 1e12,
        format_bytes(static_cast<std::int64_t>(c.bytes_accessed)), c.calls, plan.bound_seconds_per_call(c));
    if (!c.not_loaded.empty()) out += fmt::format("{:<16}not loaded: {}\n", "", c.not_loaded);
  }
  out += fmt::format(
      "\nresident {}, with --offload model {}\nno faster than {:.2f} s an image (a bound, from operations "
      "and bytes moved; uploads not counted)\n{}\n",
      format_bytes(plan.resident_bytes()), format_bytes(plan.offload_bytes()), plan.bound_seconds_per_image(),
      plan.advice());
  return out;
}

}  // namespace tessera::plan
