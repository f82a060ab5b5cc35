#include "tessera/runtime/traced_mesh.h"

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/base/file.h"
#include "tessera/graph/flops.h"

namespace tessera {

TracedMesh::TracedMesh(Context& context, const graph::MeshPtr& mesh) : context_(context) {
  auto made = std::make_shared<graph::Mesh>(*mesh);
  made->evaluator = this;
  mesh_ = std::move(made);
}

double TracedMesh::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

TracedMesh::Timer::Timer(TracedMesh& mesh, std::string name, std::string category) : mesh_(mesh) {
  event_.name = std::move(name);
  event_.category = std::move(category);
  event_.start = mesh.now();
}

TracedMesh::Timer::~Timer() {
  if (!mesh_.keep_ || drop_) return;
  event_.seconds = mesh_.now() - event_.start;
  std::lock_guard lock(mesh_.mutex_);
  mesh_.events_.push_back(std::move(event_));
}

void TracedMesh::recorded(const graph::NodePtr& node) {
  flops_ += graph::product_flops(*node);
  if (!keep_) return context_.recorded(node);
  Timer timer(*this, std::string(node->where().empty() ? node->op()->name : node->where()), "program");
  timer.count(1);
  context_.recorded(node);
  if (node->state() == graph::Node::State::kPending) timer.drop();  // a later program's
}

void TracedMesh::evaluate(std::span<const graph::NodePtr> nodes, graph::Liveness liveness) {
  if (!keep_) return context_.evaluate(nodes, liveness);
  const graph::Node& last = *nodes.back();
  Timer timer(*this, std::string(last.where().empty() ? last.op()->name : last.where()), "program");
  std::int64_t before = context_.statistics().operations;
  context_.evaluate(nodes, liveness);
  timer.count(context_.statistics().operations - before);
}

std::vector<std::byte> TracedMesh::read(const graph::NodePtr& node) {
  return event("to host", "transfer", [&] { return context_.read(node); });
}

void write_chrome_trace(const std::filesystem::path& path, const std::vector<TracedMesh::Event>& events) {
  using Json = nlohmann::ordered_json;
  std::map<std::string, int> rows;
  Json list = Json::array();
  for (const TracedMesh::Event& event : events) {
    int row = rows.try_emplace(event.category, static_cast<int>(rows.size())).first->second;
    Json item{{"name", event.name},
              {"cat", event.category},
              {"ph", "X"},
              {"ts", event.start * 1e6},
              {"dur", event.seconds * 1e6},
              {"pid", 1},
              {"tid", row}};
    if (event.operations > 0) item["args"] = {{"operations", event.operations}};
    list.push_back(std::move(item));
  }
  for (const auto& [category, row] : rows) {
    list.push_back(
        {{"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", row}, {"args", {{"name", category}}}});
  }
  std::string text = Json{{"traceEvents", list}, {"displayTimeUnit", "ms"}}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace tessera
