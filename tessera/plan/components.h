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
  bool exact = false;  // compile whole components instead of one block of each kind
};

// A component for one chip. `working_bytes` is what its largest program needs besides the weights: scratch,
// results, and operands that are no weights.
struct ComponentPlan {
  std::string name, class_name, not_loaded;
  std::int64_t weight_bytes = 0, scratch_bytes = 0, working_bytes = 0;
  double flops = 0, bytes_accessed = 0;  // of one call
  std::int64_t calls = 0;                // for one image (batch)
  double compile_seconds = 0;
  std::vector<PlannedProgram> programs;

  std::int64_t peak_bytes() const { return weight_bytes + working_bytes; }
};

// Builds the component from its config, records one call on paper and has it compiled. Throws kUnimplemented
// for a class that is not known, kDataLoss for a config that is incomplete, what the compiler reports.
ComponentPlan plan_component(const ModelFacts& model, const ModelFacts::Component& component,
                             const Request& request, Context& context, Paper& paper);

}  // namespace tessera::plan
