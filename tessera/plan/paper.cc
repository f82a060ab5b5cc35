#include "tessera/plan/paper.h"

#include <chrono>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/kernels/registry.h"
#include "tessera/runtime/pending.h"

namespace tessera::plan {

Paper::Paper(std::shared_ptr<const pjrt::Topology> topology, std::function<void(const std::string&)> progress)
    : topology_(std::move(topology)), progress_(std::move(progress)) {
  auto mesh = std::make_shared<graph::Mesh>();
  mesh->device = mesh->platform = topology_->platform_name();
  mesh->devices = {0};
  mesh->evaluator = this;
  mesh_ = std::move(mesh);
}

Tensor Paper::tensor(DType dtype, const Shape& shape) const {
  return Tensor(
      std::make_shared<graph::Node>(graph::TensorType{dtype, shape}, mesh_, std::vector<pjrt::BufferPtr>{}));
}

std::vector<PlannedProgram> Paper::take() {
  std::vector<PlannedProgram> out;
  for (const graph::Fingerprint& f : order_) {
    out.push_back(known_.at(f));
    out.back().calls = counts_.at(f);
  }
  order_.clear();
  counts_.clear();
  return out;
}

void Paper::recorded(const graph::NodePtr& node) { PendingGraph::of_this_thread().add(node); }

void Paper::evaluate(std::span<const graph::NodePtr> nodes, graph::Liveness) {
  graph::Program program = graph::cut(nodes);
  auto found = known_.find(program.fingerprint);
  if (found == known_.end()) found = known_.emplace(program.fingerprint, compile(program)).first;
  if (++counts_[program.fingerprint] == 1) order_.push_back(program.fingerprint);
  for (const graph::NodePtr& node : nodes) node->materialise({});
}

std::vector<std::byte> Paper::read(const graph::NodePtr&) {
  fail(ErrorCode::kInternal, "a value is read while a model is planned");
}

PlannedProgram Paper::compile(const graph::Program& program) const {
  PlannedProgram out;
  for (const graph::NodePtr& step : program.steps) {
    if (out.where.empty()) out.where = step->where();
  }
  out.operations = static_cast<std::int64_t>(program.steps.size());
  if (progress_) progress_(out.where);
  auto start = std::chrono::steady_clock::now();
  auto executable = topology_->compile(graph::write_text(program, kernels::lowerings()));
  out.compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  out.memory = executable->memory_stats();
  std::map<std::string, double> cost = executable->cost_analysis();
  out.flops = cost["flops"];
  out.bytes = cost["bytes accessed"];
  return out;
}

}  // namespace tessera::plan
