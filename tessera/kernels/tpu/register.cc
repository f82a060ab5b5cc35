#include "tessera/graph/shape_rules.h"
#include "tessera/kernels/registry.h"
#include "tessera/kernels/tpu/attention.h"
#include "tessera/kernels/tpu/heads.h"

namespace tessera::kernels {

void register_tpu(graph::LoweringTable& t) {
  t.add(graph::kAttention.name, tpu::lower_attention, "tpu");
  t.add(graph::kRmsNorm.name, tpu::lower_rms_norm, "tpu");
  t.add(graph::kRope.name, tpu::lower_rope, "tpu");
  t.add(graph::kQkNormRope.name, tpu::lower_qk_norm_rope, "tpu");
}

}  // namespace tessera::kernels
