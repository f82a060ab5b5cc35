#pragma once

#include <chrono>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/runtime/context.h"

namespace tessera {

// A mesh like another whose tensors report what becomes of them before the Context sees it: for benchmarks.
// Outlives its tensors. For one thread, but for event().
class TracedMesh : public graph::Evaluator {
 public:
  // Something that took the host's time.
  struct Event {
    std::string name, category;
    double start = 0, seconds = 0;  // since the mesh was made
    std::int64_t operations = 0;    // of a program
  };

  TracedMesh(Context& context, const graph::MeshPtr& mesh);
  TracedMesh(const TracedMesh&) = delete;
  TracedMesh& operator=(const TracedMesh&) = delete;

  // To be used in place of the other.
  const graph::MeshPtr& mesh() const { return mesh_; }
  // Floating-point operations of the matrix products recorded so far (graph::product_flops).
  double flops() const { return flops_; }
  // From now on (not at first) programs and reads become events. A program's event is its launch, and, in the
  // blocking mode, its run; its name is the place in the model that it ends with.
  void keep_events(bool keep) { keep_ = keep; }
  const std::vector<Event>& events() const { return events_; }

  // Runs `f` as an event of the caller's; from any thread.
  template <typename F>
  auto event(const std::string& name, const std::string& category, F&& f) {
    Timer timer(*this, name, category);
    return f();
  }

  // graph::Evaluator.
  void recorded(const graph::NodePtr& node) override;
  void evaluate(std::span<const graph::NodePtr> nodes, graph::Liveness liveness) override;
  std::vector<std::byte> read(const graph::NodePtr& node) override;

 private:
  // Adds an event when it ends.
  class Timer {
   public:
    Timer(TracedMesh& mesh, std::string name, std::string category);
    ~Timer();
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;
    void count(std::int64_t operations) { event_.operations = operations; }
    void drop() { drop_ = true; }

   private:
    TracedMesh& mesh_;
    Event event_;
    bool drop_ = false;
  };
  double now() const;

  Context& context_;
  graph::MeshPtr mesh_;
  double flops_ = 0;
  bool keep_ = false;
  std::vector<Event> events_;
  std::mutex mutex_;  // guards adding to events_
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Writes events as a Chrome trace ("Trace Event Format", complete events; a row a category), for
// ui.perfetto.dev or chrome://tracing. Errors as AtomicFile.
void write_chrome_trace(const std::filesystem::path& path, const std::vector<TracedMesh::Event>& events);

}  // namespace tessera
