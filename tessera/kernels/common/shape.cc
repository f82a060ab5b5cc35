#include "tessera/graph/shape_rules.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

using graph::OpCall;
using graph::Value;
using graph::Writer;
using Operands = std::span<const Value>;
using Ints = std::vector<std::int64_t>;

Value cast(Writer& w, const OpCall& call, Operands x) { return w.convert(x[0], call.result.dtype); }
Value reshape(Writer& w, const OpCall& call, Operands x) { return w.reshape(x[0], call.result.shape); }
Value broadcast_to(Writer& w, const OpCall& call, Operands x) {
  return w.broadcast_to(x[0], call.result.shape);
}
Value transpose(Writer& w, const OpCall& call, Operands x) {
  return w.transpose(x[0], call.attributes.get<Ints>("permutation"));
}
Value slice(Writer& w, const OpCall& call, Operands x) {
  return w.slice(x[0], call.attributes.get<Ints>("begin"), call.attributes.get<Ints>("end"));
}
Value concatenate(Writer& w, const OpCall& call, Operands x) {
  return w.concatenate(x, static_cast<int>(call.attributes.get<std::int64_t>("axis")));
}
Value pad(Writer& w, const OpCall& call, Operands x) {
  const Ints& low = call.attributes.get<Ints>("low");
  return w.pad(x[0], 0, low, call.attributes.get<Ints>("high"), Ints(low.size(), 0));
}

}  // namespace

void register_shape(graph::LoweringTable& t) {
  t.add(graph::kCast.name, cast);
  t.add(graph::kReshape.name, reshape);
  t.add(graph::kBroadcastTo.name, broadcast_to);
  t.add(graph::kTranspose.name, transpose);
  t.add(graph::kSlice.name, slice);
  t.add(graph::kConcatenate.name, concatenate);
  t.add(graph::kPad.name, pad);
}

}  // namespace tessera::kernels
