#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/graph/writer.h"

namespace tessera::graph {

// An operation to be written into a program.
struct OpCall {
  const OpDef& op;
  const Attributes& attributes;
  const TensorType& result;
};

// Writes one operation with the Writer and returns its result, of type call.result.
using Lowering = Value (*)(Writer& writer, const OpCall& call, std::span<const Value> operands);

// How each operation is lowered, by platform; a lowering for "" serves every platform that has none of its
// own.
class LoweringTable {
 public:
  void add(std::string_view op, Lowering lowering, std::string_view platform = "");
  // Throws kUnimplemented, naming both, if there is none.
  Lowering find(std::string_view op, std::string_view platform) const;

 private:
  std::map<std::pair<std::string, std::string>, Lowering, std::less<>> table_;
};

}  // namespace tessera::graph
