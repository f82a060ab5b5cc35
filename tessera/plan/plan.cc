#include "tessera/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/pipelines/loading.h"
#include "tessera/pjrt/registry.h"

namespace tessera::plan {
namespace {

// What a component needs on a device.
struct Need {
  std::int64_t stays = 0;  // while it is there: weights and programs
  std::int64_t working = 0;
};

std::int64_t bytes_of(const std::vector<Need>& needs, Residence residence) {
  std::int64_t sum = 0, working = 0, most = 0;
  for (const Need& need : needs) {
    sum += need.stays;
    working = std::max(working, need.working);
    most = std::max(most, need.stays + need.working);
  }
  return residence == Residence::kAll ? sum + working : most;
}

std::vector<Need> needs_of(const std::vector<ComponentPlan>& components) {
  std::vector<Need> out;
  for (const ComponentPlan& c : components) out.push_back({c.weight_bytes + c.code_bytes, c.working_bytes});
  return out;
}

class Planner {
 public:
  Planner(const ModelFacts& model, const Request& request, const std::string& topology,
          const PlanHooks& hooks)
      : model_(model),
        request_(request),
        hooks_(hooks),
        machine_(find_topology(*pjrt::PluginRegistry().load("tpu"), topology)) {
    plan_.model = model.name;
    plan_.topology = topology_name(topology);
    plan_.chip = chip_of(*machine_);
    plan_.tensor_parallel = request.tensor_parallel;
  }

  Plan make() {
    check_ranks();
    plan_.components = compiled(request_.tensor_parallel);
    plan_.min_ranks = smallest(Residence::kAll);
    plan_.min_ranks_offload = smallest(Residence::kOffload);
    return plan_;
  }

 private:
  using Components = std::vector<ComponentPlan>;

  std::vector<ComponentWeights> weights(int ranks) const {
    std::vector<ComponentWeights> out;
    for (const ModelFacts::Component& c : model_.components)
      out.push_back(weights_of(model_, c, request_, ranks));
    return out;
  }

  // In the words in which the pipelines refuse it.
  void check_ranks() const {
    int ranks = request_.tensor_parallel;
    for (const std::string& name : request_.replicate) {
      auto is_it = [&](const ModelFacts::Component& c) { return c.name == name; };
      if (std::ranges::any_of(model_.components, is_it)) continue;
      std::vector<std::string> names;
      for (const ModelFacts::Component& c : model_.components) names.push_back(c.name);
      invalid_argument("replicate names '{}', which is no component; the components are {}", name,
                       fmt::join(names, ", "));
    }
    std::vector<ComponentWeights> all = weights(ranks);
    pipelines::RankFaults faults;
    for (std::size_t i = 0; i < all.size(); ++i) faults.add(model_.components[i].name, all[i].faults);
    faults.check(ranks);
    if (ranks > plan_.chip.devices) {
      invalid_argument("{} ranks do not go into {}, which has {} device(s); name a larger topology", ranks,
                       plan_.topology, plan_.chip.devices);
    }
  }

  Components compile(int ranks) const {
    // Ids and tables that models upload go to devices that are always there.
    Context context({.client_options = {{"cpu_device_count", std::int64_t{ranks}}}, .disk_cache = nullptr});
    context.mesh();
    std::string doing;
    Paper paper(machine_, ranks, [&](const std::string& where) {
      if (hooks_.progress) hooks_.progress(fmt::format("{}: compiling {}", doing, where));
    });
    paper.set_limited(request_.as_run);
    Components out;
    for (const ModelFacts::Component& component : model_.components) {
      doing = component.name;
      if (ranks != request_.tensor_parallel) doing += fmt::format(" on {} ranks", ranks);
      out.push_back(plan_component(model_, component, request_, context, paper));
    }
    if (hooks_.programs && ranks == request_.tensor_parallel) hooks_.programs(paper.keyed_programs());
    return out;
  }

  const Components& compiled(int ranks) {
    auto found = compiled_.find(ranks);
    if (found == compiled_.end()) found = compiled_.emplace(ranks, compile(ranks)).first;
    return found->second;
  }

  // Compiles for as many ranks only where it must: what is needed besides weights is at least its share of
  // what fewer ranks need, and at most what they do.
  bool fits(int ranks, Residence residence) {
    auto known = compiled_.find(ranks);
    if (known != compiled_.end())
      return bytes_of(needs_of(known->second), residence) <= plan_.chip.memory_bytes;
    double share = static_cast<double>(request_.tensor_parallel) / ranks;
    std::vector<ComponentWeights> all = weights(ranks);
    std::vector<Need> least, most;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const ComponentPlan& c = plan_.components[i];
      auto working = static_cast<double>(c.working_bytes);
      std::int64_t stays = all[i].bytes + c.code_bytes;
      least.push_back({stays, static_cast<std::int64_t>(working * std::min(share, 1.0))});
      most.push_back({stays, static_cast<std::int64_t>(working * std::max(share, 1.0))});
    }
    if (bytes_of(most, residence) <= plan_.chip.memory_bytes) return true;
    if (bytes_of(least, residence) > plan_.chip.memory_bytes || ranks > plan_.chip.devices) return false;
    return bytes_of(needs_of(compiled(ranks)), residence) <= plan_.chip.memory_bytes;
  }

  std::optional<int> smallest(Residence residence) {
    for (int ranks = 1; ranks <= Plan::kMostRanks; ++ranks) {
      auto at_fault = [](const ComponentWeights& w) { return !w.faults.empty(); };
      if (!std::ranges::any_of(weights(ranks), at_fault) && fits(ranks, residence)) return ranks;
    }
    return std::nullopt;
  }

  const ModelFacts& model_;
  const Request& request_;
  const PlanHooks& hooks_;
  std::shared_ptr<const pjrt::Topology> machine_;
  std::map<int, Components> compiled_;  // by the number of ranks
  Plan plan_;
};

}  // namespace

std::int64_t Plan::weight_bytes() const {
  std::int64_t sum = 0;
  for (const ComponentPlan& c : components) sum += c.weight_bytes;
  return sum;
}

std::int64_t Plan::bytes(Residence residence) const { return bytes_of(needs_of(components), residence); }

double Plan::link_bytes(const ComponentPlan& c) const {
  return 2.0 * (tensor_parallel - 1) / tensor_parallel * static_cast<double>(c.reduced_bytes);
}

Bound Plan::bound_of_call(const ComponentPlan& c) const {
  // Between the devices of one chip there are no links.
  double chips = std::max(1.0, static_cast<double>(tensor_parallel) / chip.devices_per_chip);
  double over_links = 2 * (chips - 1) / chips * static_cast<double>(c.reduced_bytes);
  Bound bound{c.flops / chip.flops, "operations"};
  auto raise = [&](double seconds, std::string_view by) {
    if (seconds > bound.seconds) bound = {seconds, by};
  };
  raise(c.bytes_accessed / chip.bytes_per_second, "memory");
  if (over_links > 0) raise(over_links / chip.link_bytes_per_second, "links");
  return bound;
}

double Plan::bound_seconds_per_image(Residence residence) const {
  double sum = 0;
  for (const ComponentPlan& c : components) sum += static_cast<double>(c.calls) * bound_of_call(c).seconds;
  if (residence == Residence::kOffload)
    sum += static_cast<double>(weight_bytes()) / chip.upload_bytes_per_second;
  return sum;
}

Plan make_plan(const ModelFacts& model, const Request& request, const std::string& topology,
               const PlanHooks& hooks) {
  return Planner(model, request, topology, hooks).make();
}

}  // namespace tessera::plan
