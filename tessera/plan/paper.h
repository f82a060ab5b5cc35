#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tessera/graph/program.h"
#include "tessera/pjrt/pjrt.h"
#include "tessera/runtime/tensor.h"

namespace tessera::plan {

// A program as the compiler made it, for one device, and how often a call runs it.
struct PlannedProgram {
  std::string where;  // the part of the model that it begins with
  std::int64_t calls = 0, operations = 0;
  pjrt::CompiledMemoryStats memory;
  double flops = 0, bytes = 0;     // of one run
  std::int64_t reduced_bytes = 0;  // that its all-reduces add up over the ranks, in one run
  // What a device needs at most while it runs, weights and code left out: its scratch and results, and every
  // other tensor that is alive then.
  std::int64_t working_bytes = 0;
  double compile_seconds = 0;
};

// A program with the key under which a machine of the topology would look for it in its disk cache.
struct KeyedProgram {
  std::string key;
  std::shared_ptr<const pjrt::Executable> executable;
};

// Evaluates on paper: programs are cut as in the deferring mode but for its limits, and each program that is
// cut is compiled for the topology (once for each fingerprint) and counted instead of run. Its tensors hold
// no data.
class Paper : public graph::Evaluator {
 public:
  // A model is split over the first `ranks` devices of the topology. `progress` hears of every program before
  // it is compiled.
  Paper(std::shared_ptr<const pjrt::Topology> topology, int ranks,
        std::function<void(const std::string&)> progress);

  // Where paper tensors live: lowerings are those of the topology's platform. Uploads of a Context go to its
  // first client.
  const graph::MeshPtr& mesh() const { return mesh_; }
  // A tensor that is no weight, such as a model's input.
  Tensor tensor(DType dtype, const Shape& shape);
  // Cuts a pending graph that has grown too large as well, so that programs are those of the deferring mode.
  void set_limited(bool limited) { limited_ = limited; }
  // From here on programs are compiled quickly (pjrt::CompileOptions::quick), or not.
  void set_quick(bool quick) { quick_ = quick; }
  // What was counted since the last time, in the order of first use.
  std::vector<PlannedProgram> take();
  // Everything that was compiled, but quickly.
  std::vector<KeyedProgram> keyed_programs() const;

  void recorded(const graph::NodePtr& node) override;
  void evaluate(std::span<const graph::NodePtr> nodes, graph::Liveness liveness) override;
  // Throws kInternal: there is nothing to read.
  std::vector<std::byte> read(const graph::NodePtr& node) override;

 private:
  struct Known {
    PlannedProgram program;
    std::shared_ptr<const pjrt::Executable> executable;
    std::string text_key;  // of the text and options; empty if compiled quickly
  };
  Known compile(const graph::Program& program) const;
  // Of all tensors but weights that somebody holds now.
  std::int64_t live_bytes();

  std::shared_ptr<const pjrt::Topology> topology_;
  std::function<void(const std::string&)> progress_;
  graph::MeshPtr mesh_;
  bool quick_ = false, limited_ = false;
  std::map<graph::Fingerprint, Known> known_;
  std::vector<graph::Fingerprint> order_;
  struct Count {
    std::int64_t calls = 0, working_bytes = 0;
  };
  std::map<graph::Fingerprint, Count> counts_;
  std::vector<std::weak_ptr<graph::Node>> live_;
};

}  // namespace tessera::plan
