#include "tessera/runtime/pending.h"

#include <algorithm>
#include <exception>
#include <unordered_map>
#include <utility>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using graph::Node;
using graph::NodePtr;

thread_local PendingGraph pending_graph;
thread_local const Recording* current_recording = nullptr;

bool pending(const NodePtr& node) { return node->state() == Node::State::kPending; }

// Those of the nodes that somebody else than the nodes themselves holds. Each is held once by `nodes`.
std::vector<NodePtr> held_outside(const std::vector<NodePtr>& nodes) {
  std::unordered_map<const Node*, long> inside;
  for (const NodePtr& node : nodes) {
    for (const NodePtr& operand : node->operands()) {
      if (pending(operand)) ++inside[operand.get()];
    }
  }
  std::vector<NodePtr> held;
  for (const NodePtr& node : nodes) {
    auto it = inside.find(node.get());
    if (node.use_count() > 1 + (it == inside.end() ? 0 : it->second)) held.push_back(node);
  }
  return held;
}

}  // namespace

PendingGraph& PendingGraph::of_this_thread() { return pending_graph; }

void PendingGraph::add(const NodePtr& node) {
  nodes_.push_back(node);
  bytes_ += dtype_bytes(node->type().dtype, node->type().shape.elements());
}

std::vector<NodePtr> PendingGraph::take() {
  std::vector<NodePtr> nodes;
  for (const std::weak_ptr<Node>& weak : std::exchange(nodes_, {})) {
    if (NodePtr node = weak.lock(); node && pending(node)) nodes.push_back(std::move(node));
  }
  bytes_ = 0;
  return held_outside(nodes);
}

void PendingGraph::cut() {
  if (nodes_.empty()) return;
  std::vector<NodePtr> wanted = take();
  std::exception_ptr error;
  while (!wanted.empty()) {
    graph::MeshPtr mesh = wanted.front()->mesh();
    auto rest = std::stable_partition(wanted.begin(), wanted.end(),
                                      [&](const NodePtr& node) { return node->mesh() == mesh; });
    std::vector<NodePtr> outputs(wanted.begin(), rest);
    wanted.erase(wanted.begin(), rest);
    try {
      mesh->evaluator->evaluate(outputs, graph::Liveness::kOutputsOnly);
    } catch (const Error&) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

Recording::Recording(std::string what, bool fullgraph)
    : what_(std::move(what)), fullgraph_(fullgraph), outer_(std::exchange(current_recording, this)) {}
Recording::~Recording() { current_recording = outer_; }
const Recording* Recording::current() { return current_recording; }

void Recording::check_read() const {
  if (!fullgraph_) return;
  const auto& where = graph::ScopedLocation::current();
  invalid_argument(
      "{} is compiled with fullgraph, and a value is read on the host while it is recorded{}; read it after "
      "the call, or compile without fullgraph",
      what_, where ? " (in " + *where + ")" : "");
}

}  // namespace tessera
