#include "tessera/graph/shape_rules.h"
#include "tessera/kernels/cpu/handlers.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

using graph::OpCall;
using graph::Value;
using graph::Writer;

// Between the devices of one process XLA adds up; between processes we do, in f32, in the program's order.
Value all_reduce(Writer& w, const OpCall& call, std::span<const Value> x) {
  if (!call.attributes.get<bool>("across_processes")) {
    return w.all_reduce(x[0], call.attributes.get<std::int64_t>("ranks"));
  }
  Value sum = w.call_in_order(kAllReduceOnHost, w.convert(x[0], DType::kF32));
  return w.convert(sum, call.result.dtype);
}

}  // namespace

void register_cpu(graph::LoweringTable& t) { t.add(graph::kAllReduce.name, all_reduce, "cpu"); }

}  // namespace tessera::kernels
