#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/graph/node.h"

namespace tessera::pipelines {

// How a pipeline is split over the ranks of a mesh: its weights are read and held in parts, its activations
// meet where a part of a sum ends. Made once, for the life of the pipeline.
struct TensorParallelConfig {
  // From Context::mesh. The pipeline computes there.
  graph::MeshPtr mesh = {};
  // Components whose weights are shared out, by name; if not given, all whose model has a plan. Every rank
  // has all of the others and computes them.
  std::optional<std::vector<std::string>> components = {};
  // Exceptions from that.
  std::vector<std::string> replicate = {};
  // The decoder is on the first device alone. For ranks that are all in one process.
  bool vae_on_one_device = false;
};

}  // namespace tessera::pipelines
