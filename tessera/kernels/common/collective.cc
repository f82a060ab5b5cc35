#include "tessera/graph/shape_rules.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

using graph::OpCall;
using graph::Value;
using graph::Writer;

Value all_reduce(Writer& w, const OpCall& call, std::span<const Value> x) {
  return w.all_reduce(x[0], call.attributes.get<std::int64_t>("ranks"));
}

}  // namespace

void register_collective(graph::LoweringTable& t) { t.add(graph::kAllReduce.name, all_reduce); }

}  // namespace tessera::kernels
