#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/plan/paper.h"
#include "tessera/plan/published.h"
#include "tessera/runtime/context.h"

namespace tessera::plan {

// The call that is planned.
struct Request {
  std::int64_t height = 1024, width = 1024, batch = 1;
  std::optional<std::int64_t> steps, max_sequence_length;
  DType dtype = DType::kBF16;
  bool exact = false;   // compile whole components instead of one block of each kind
  bool as_run = false;  // compile just the programs that a machine would, which takes longer
  int tensor_parallel = 1;
  std::vector<std::string> replicate;  // components that every rank keeps whole
};

// The weights of a component that is split over some ranks.
struct ComponentWeights {
  std::int64_t bytes = 0;             // on each of them
  std::int64_t not_loaded_bytes = 0;  // what the checkpoint holds besides, of the same model
  // What the ranks cannot share out, as nn::ParameterStore::plan_faults.
  std::vector<std::string> faults;
};

// A component for one device.
struct ComponentPlan {
  std::string name, class_name, not_loaded;
  std::int64_t weight_bytes = 0, not_loaded_bytes = 0;
  // What it needs besides at most, while it runs: the scratch of the program that needs most, its results,
  // and what is passed between programs.
  std::int64_t working_bytes = 0;
  std::int64_t scratch_bytes = 0;
  std::int64_t code_bytes = 0;           // of all its programs
  double flops = 0, bytes_accessed = 0;  // of one call
  std::int64_t reduced_bytes = 0;        // that all-reduces add up over the ranks, in one call
  std::int64_t calls = 0;                // for one image (batch)
  double compile_seconds = 0;
  std::vector<PlannedProgram> programs;

  std::int64_t peak_bytes() const { return weight_bytes + code_bytes + working_bytes; }
};

// Builds the component from its config, records one call on paper and has it compiled, for the ranks of the
// paper's mesh. Throws kUnimplemented for a class that is not known, kDataLoss for a config that is
// incomplete, what the compiler reports.
ComponentPlan plan_component(const ModelFacts& model, const ModelFacts::Component& component,
                             const Request& request, Context& context, Paper& paper);

// Builds the component only.
ComponentWeights weights_of(const ModelFacts& model, const ModelFacts::Component& component,
                            const Request& request, int ranks);

}  // namespace tessera::plan
