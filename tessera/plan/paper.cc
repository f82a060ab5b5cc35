#include "tessera/plan/paper.h"

#include <chrono>
#include <numeric>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/graph/shape_rules.h"
#include "tessera/kernels/registry.h"
#include "tessera/runtime/disk_cache.h"
#include "tessera/runtime/environment_key.h"
#include "tessera/runtime/launcher.h"
#include "tessera/runtime/pending.h"

namespace tessera::plan {
namespace {

std::int64_t bytes_of(const graph::Node& node) {
  return dtype_bytes(node.type().dtype, node.type().shape.elements());
}

}  // namespace

Paper::Paper(std::shared_ptr<const pjrt::Topology> topology, int ranks,
             std::function<void(const std::string&)> progress)
    : topology_(std::move(topology)), progress_(std::move(progress)) {
  auto mesh = std::make_shared<graph::Mesh>();
  mesh->device = mesh->platform = topology_->platform_name();
  mesh->devices.resize(static_cast<std::size_t>(ranks));
  std::iota(mesh->devices.begin(), mesh->devices.end(), 0);
  mesh->evaluator = this;
  mesh_ = std::move(mesh);
}

Tensor Paper::tensor(DType dtype, const Shape& shape) {
  auto node =
      std::make_shared<graph::Node>(graph::TensorType{dtype, shape}, mesh_, std::vector<pjrt::BufferPtr>{});
  live_.push_back(node);
  return Tensor(std::move(node));
}

std::vector<PlannedProgram> Paper::take() {
  std::vector<PlannedProgram> out;
  for (const graph::Fingerprint& f : order_) {
    const Count& count = counts_.at(f);
    out.push_back(known_.at(f).program);
    out.back().calls = count.calls;
    out.back().working_bytes = count.working_bytes;
  }
  order_.clear();
  counts_.clear();
  return out;
}

std::vector<KeyedProgram> Paper::keyed_programs() const {
  std::vector<KeyedProgram> out;
  std::string environment = environment_key(*topology_);
  for (const auto& [fingerprint, known] : known_) {
    if (!known.text_key.empty()) out.push_back({known.text_key + environment, known.executable});
  }
  return out;
}

void Paper::recorded(const graph::NodePtr& node) {
  PendingGraph& pending = PendingGraph::of_this_thread();
  pending.add(node);
  if (limited_ && Recording::current() == nullptr && pending.over_limit()) pending.cut();
}

std::int64_t Paper::live_bytes() {
  std::int64_t sum = 0;
  std::erase_if(live_, [&](const std::weak_ptr<graph::Node>& weak) {
    graph::NodePtr node = weak.lock();
    if (node) sum += bytes_of(*node);
    return !node;
  });
  return sum;
}

void Paper::evaluate(std::span<const graph::NodePtr> nodes, graph::Liveness) {
  graph::Program program = graph::cut(nodes);
  auto found = known_.find(program.fingerprint);
  if (found == known_.end()) found = known_.emplace(program.fingerprint, compile(program)).first;
  const pjrt::CompiledMemoryStats& memory = found->second.program.memory;
  Count& count = counts_[program.fingerprint];
  if (++count.calls == 1) order_.push_back(program.fingerprint);
  count.working_bytes =
      std::max(count.working_bytes, live_bytes() + memory.temp + memory.outputs - memory.alias);
  for (const graph::NodePtr& node : nodes) {
    node->materialise({});
    live_.push_back(node);
  }
}

std::vector<std::byte> Paper::read(const graph::NodePtr&) {
  fail(ErrorCode::kInternal, "a value is read while a model is planned");
}

Paper::Known Paper::compile(const graph::Program& program) const {
  Known known;
  PlannedProgram& out = known.program;
  for (const graph::NodePtr& step : program.steps) {
    if (out.where.empty()) out.where = step->where();
    if (step->op()->name == graph::kAllReduce.name) out.reduced_bytes += bytes_of(*step);
  }
  out.operations = static_cast<std::int64_t>(program.steps.size());
  if (progress_) progress_(out.where);
  pjrt::CompileOptions options;
  options.num_replicas = mesh_->size();
  for (int device : mesh_->devices)
    options.device_ids.push_back(topology_->devices()[static_cast<std::size_t>(device)].id);
  options.set_for_platform(topology_->platform_name());
  options.quick = quick_;
  std::string text = graph::write_text(program, kernels::lowerings(), choose_aliases(program));
  if (!quick_) known.text_key = program_key("", text, options.serialize());
  auto start = std::chrono::steady_clock::now();
  known.executable = topology_->compile(text, options);
  out.compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  out.memory = known.executable->memory_stats();
  std::map<std::string, double> cost = known.executable->cost_analysis();
  out.flops = cost["flops"];
  out.bytes = cost["bytes accessed"];
  return known;
}

}  // namespace tessera::plan
