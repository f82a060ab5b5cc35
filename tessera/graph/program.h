#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/graph/lowering.h"
#include "tessera/graph/node.h"

namespace tessera::graph {

// Tells programs apart: operations, attributes, types, wiring and platform; never addresses, names or values.
struct Fingerprint {
  std::uint64_t low = 0, high = 0;
  friend auto operator<=>(const Fingerprint&, const Fingerprint&) = default;
};

// A piece of the pending graph, cut out to become one program: what it reads, computes and returns.
struct Program {
  std::vector<NodePtr> arguments;  // materialised nodes, each once
  std::vector<NodePtr> steps;      // pending nodes, operands before users
  std::vector<NodePtr> outputs;
  MeshPtr mesh;
  Fingerprint fingerprint;
};

// Cuts out everything pending that the outputs need. The outputs are pending and share a mesh. Throws the
// error of a failed operand.
Program cut(std::span<const NodePtr> outputs);

// The StableHLO text of a program. `aliases`, if not empty, has for each argument the output whose memory it
// may become, or -1.
std::string write_text(const Program& program, const LoweringTable& lowerings,
                       std::span<const int> aliases = {});

}  // namespace tessera::graph
