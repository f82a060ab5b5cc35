#include "tessera/kernels/registry.h"

namespace tessera::kernels {

const graph::LoweringTable& lowerings() {
  static const graph::LoweringTable table = [] {
    graph::LoweringTable t;
    register_elementwise(t);
    register_shape(t);
    register_linear(t);
    register_norm(t);
    register_attention(t);
    register_diffusion(t);
    register_collective(t);
    register_cpu(t);
    register_tpu(t);
    return t;
  }();
  return table;
}

}  // namespace tessera::kernels
