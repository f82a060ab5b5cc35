#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tessera/base/env.h"
#include "tessera/plan/plan.h"

namespace tessera::plan {
namespace {

using Json = nlohmann::ordered_json;

std::string gigabytes_per_second(double bytes) { return fmt::format("{:.0f} GB/s", bytes / 1e9); }

// "a chip of 'TPU7x', which are two devices" is what a topology counts.
std::string devices(const Plan& plan, int count) {
  std::string_view unit = plan.chip.devices_per_chip > 1 ? "device" : "chip";
  return fmt::format("{} {}{}", count, unit, count == 1 ? "" : "s");
}

Json number_or_null(std::optional<int> number) { return number ? Json(*number) : Json(nullptr); }

// "N = 2", "none up to 64".
std::string ranks_or_none(std::optional<int> ranks) {
  return ranks ? fmt::format("N = {}", *ranks) : fmt::format("none up to {}", Plan::kMostRanks);
}

}  // namespace

std::string Plan::advice() const {
  std::int64_t spare = chip.memory_bytes - bytes(Residence::kAll);
  std::string here = tensor_parallel == 1
                         ? fmt::format("on {}", devices(*this, 1))
                         : fmt::format("on {} (N = {})", devices(*this, tensor_parallel), tensor_parallel);
  std::string out;
  if (spare >= 0) {
    out = fmt::format("fits resident {}, with {} to spare on each", here, format_bytes(spare));
  } else {
    out = fmt::format("does not fit resident {} ({} too much)", here, format_bytes(-spare));
    spare = chip.memory_bytes - bytes(Residence::kOffload);
    if (spare >= 0) {
      out += fmt::format(
          "; fits with --offload model, with {} to spare, and {} come from the host for each image",
          format_bytes(spare), format_bytes(weight_bytes()));
    } else {
      out += fmt::format(", nor with --offload model ({} too much)", format_bytes(-spare));
    }
  }
  bool more = !fits(Residence::kAll) && min_ranks && *min_ranks != tensor_parallel;
  if (more) {
    out += fmt::format("; use --tensor-parallel {}", *min_ranks);
    if (*min_ranks > chip.devices) out += " on a larger topology";
  } else if (!fits(Residence::kOffload) && !min_ranks) {
    out +=
        "; no number of chips that its heads can be shared out over is enough: take a chip with more memory";
  } else if (fits(Residence::kAll) && min_ranks && *min_ranks < tensor_parallel) {
    out += fmt::format("; {} would be enough", devices(*this, *min_ranks));
  }
  return out;
}

nlohmann::ordered_json to_json(const Plan& plan) {
  Json out{{"model", plan.model},
           {"topology", plan.topology},
           {"chip", plan.chip.kind},
           {"devices", plan.chip.devices},
           {"memory_limit_bytes", plan.chip.memory_bytes},
           {"tensor_parallel", plan.tensor_parallel},
           {"components", Json::array()}};
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
    Bound bound = plan.bound_of_call(c);
    out["components"].push_back({{"name", c.name},
                                 {"class", c.class_name},
                                 {"weight_bytes", c.weight_bytes},
                                 {"not_loaded", c.not_loaded},
                                 {"not_loaded_bytes", c.not_loaded_bytes},
                                 {"scratch_bytes", c.scratch_bytes},
                                 {"code_bytes", c.code_bytes},
                                 {"peak_bytes", c.peak_bytes()},
                                 {"flops", c.flops},
                                 {"bytes_accessed", c.bytes_accessed},
                                 {"ici_bytes", static_cast<std::int64_t>(plan.link_bytes(c))},
                                 {"calls", c.calls},
                                 {"bound_seconds_per_call", bound.seconds},
                                 {"bound_by", bound.by},
                                 {"compile_seconds", c.compile_seconds},
                                 {"programs", std::move(programs)}});
  }
  Residence best = plan.fits(Residence::kAll) ? Residence::kAll : Residence::kOffload;
  out["resident_bytes"] = {{"none", plan.bytes(Residence::kAll)}, {"model", plan.bytes(Residence::kOffload)}};
  out["upload_bytes_per_image"] = {{"none", 0}, {"model", plan.weight_bytes()}};
  out["fits"] = {{"none", plan.fits(Residence::kAll)}, {"model", plan.fits(Residence::kOffload)}};
  out["min_tensor_parallel"] = {{"none", number_or_null(plan.min_ranks)},
                                {"model", number_or_null(plan.min_ranks_offload)}};
  out["bound_seconds"] = {{"none", plan.bound_seconds_per_image(Residence::kAll)},
                          {"model", plan.bound_seconds_per_image(Residence::kOffload)}};
  out["bound_seconds_per_image"] = plan.bound_seconds_per_image(best);
  out["bound_speeds"] = {{"flops", plan.chip.flops},
                         {"memory_bytes_per_second", plan.chip.bytes_per_second},
                         {"link_bytes_per_second", plan.chip.link_bytes_per_second},
                         {"upload_bytes_per_second", plan.chip.upload_bytes_per_second}};
  out["advice"] = plan.advice();
  return out;
}

std::string to_table(const Plan& plan) {
  std::string out = fmt::format("{} on {} of {} ({}, {} of memory each)\n\n", plan.model,
                                devices(plan, plan.tensor_parallel), plan.topology, plan.chip.kind,
                                format_bytes(plan.chip.memory_bytes));
  out += fmt::format("{:<15}{:>10}{:>10}{:>10}{:>8}{:>10}{:>10}{:>6}  {}\n", "component", "weights",
                     "scratch", "peak", "TFLOP", "moved", "links", "calls", "bound of a call");
  auto size = [](double bytes) { return format_bytes(static_cast<std::int64_t>(bytes)); };
  for (const ComponentPlan& c : plan.components) {
    Bound bound = plan.bound_of_call(c);
    out += fmt::format("{:<15}{:>10}{:>10}{:>10}{:>8.2f}{:>10}{:>10}{:>6}  {:.4f} s by {}\n", c.name,
                       format_bytes(c.weight_bytes), format_bytes(c.scratch_bytes),
                       format_bytes(c.peak_bytes()), c.flops / 1e12, size(c.bytes_accessed),
                       size(plan.link_bytes(c)), c.calls, bound.seconds, bound.by);
    if (c.not_loaded.empty()) continue;
    out += fmt::format("{:<15}not loaded: {}", "", c.not_loaded);
    out += c.not_loaded_bytes > 0 ? fmt::format(" ({} of layers)\n", format_bytes(c.not_loaded_bytes)) : "\n";
  }
  out += "(all of one device, and of one call)\n\n";
  auto line = [&](const char* name, Residence residence, const char* offload, std::optional<int> smallest) {
    std::int64_t spare = plan.chip.memory_bytes - plan.bytes(residence);
    out += fmt::format("{:<9}{:<16} needs {:>9}: {:<26} smallest N that fits: {}\n", name, offload,
                       format_bytes(plan.bytes(residence)),
                       spare >= 0 ? fmt::format("fits, {} to spare", format_bytes(spare))
                                  : fmt::format("{} too much", format_bytes(-spare)),
                       ranks_or_none(smallest));
  };
  line("resident", Residence::kAll, "", plan.min_ranks);
  line("with", Residence::kOffload, "--offload model", plan.min_ranks_offload);
  const Chip& chip = plan.chip;
  out +=
      fmt::format("no faster than {:.3f} s an image resident, {:.3f} s with --offload model ({} uploaded)\n",
                  plan.bound_seconds_per_image(Residence::kAll),
                  plan.bound_seconds_per_image(Residence::kOffload), format_bytes(plan.weight_bytes()));
  out += fmt::format(
      "(bounds, not estimates: operations at {:.0f} TFLOP/s, memory at {}, links at {} out of a chip, "
      "uploads at {})\n\n{}\n",
      chip.flops / 1e12, gigabytes_per_second(chip.bytes_per_second),
      gigabytes_per_second(chip.link_bytes_per_second), gigabytes_per_second(chip.upload_bytes_per_second),
      plan.advice());
  return out;
}

}  // namespace tessera::plan
