#include "tessera/graph/flops.h"

#include "tessera/graph/shape_rules.h"

namespace tessera::graph {

double product_flops(const Node& node) {
  auto shape = [&](std::size_t operand) -> const Shape& { return node.operands()[operand]->type().shape; };
  auto products = [&](std::int64_t length) {
    return 2.0 * static_cast<double>(node.type().shape.elements()) * static_cast<double>(length);
  };
  if (node.op() == &kLinear || node.op() == &kMatmul) return products(shape(0)[-1]);
  if (node.op() == &kConv2d) return products(shape(1)[1] * shape(1)[2] * shape(1)[3]);
  // The scores, and the sum of values that they weigh.
  if (node.op() == &kAttention) return 2 * products(shape(1)[1]);
  return 0;
}

}  // namespace tessera::graph
