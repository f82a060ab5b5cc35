#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/graph/program.h"
#include "tessera/pjrt/pjrt.h"
#include "tessera/runtime/tensor.h"

namespace tessera::plan {

// A program as the compiler made it for one chip, and how often a call runs it.
struct PlannedProgram {
  std::string where;  // the part of the model that it begins with
  std::int64_t calls = 0, operations = 0;
  pjrt::CompiledMemoryStats memory;
  double flops = 0, bytes = 0;  // of one run
  double compile_seconds = 0;
};

// Evaluates on paper: operations stay pending as in the deferring mode, and each program that is cut is
// compiled for the topology (once for each fingerprint) and counted instead of run. Its tensors hold no data.
class Paper : public graph::Evaluator {
 public:
  // `progress` hears of every program before it is compiled.
  Paper(std::shared_ptr<const pjrt::Topology> topology, std::function<void(const std::string&)> progress);

  // Where paper tensors live: lowerings are those of the topology's platform. Uploads of a Context go to its
  // first client.
  const graph::MeshPtr& mesh() const { return mesh_; }
  Tensor tensor(DType dtype, const Shape& shape) const;
  // What was counted since the last time, in the order of first use.
  std::vector<PlannedProgram> take();

  void recorded(const graph::NodePtr& node) override;
  void evaluate(std::span<const graph::NodePtr> nodes, graph::Liveness liveness) override;
  // Throws kInternal: there is nothing to read.
  std::vector<std::byte> read(const graph::NodePtr& node) override;

 private:
  PlannedProgram compile(const graph::Program& program) const;

  std::shared_ptr<const pjrt::Topology> topology_;
  std::function<void(const std::string&)> progress_;
  graph::MeshPtr mesh_;
  std::map<graph::Fingerprint, PlannedProgram> known_;
  std::vector<graph::Fingerprint> order_;
  std::map<graph::Fingerprint, std::int64_t> counts_;
};

}  // namespace tessera::plan
