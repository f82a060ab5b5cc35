#pragma once

#include <span>
#include <string_view>

#include "tessera/graph/writer.h"

namespace tessera::kernels::tpu {

// Calls a kernel whose module and cost are in `config` (mosaic::backend_config); operands and result lie in
// memory with their last axis innermost. `name` is what profiles show.
graph::Value call_kernel(graph::Writer& writer, std::string_view name, std::string_view config,
                         std::span<const graph::Value> operands, const graph::TensorType& result);

}  // namespace tessera::kernels::tpu
