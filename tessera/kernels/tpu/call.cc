#include "tessera/kernels/tpu/call.h"

#include <fmt/format.h>

#include <string>

namespace tessera::kernels::tpu {
namespace {

std::string layout(const Shape& shape) {
  std::string order;
  for (int axis = shape.rank() - 1; axis >= 0; --axis)
    order += fmt::format("{}{}", order.empty() ? "" : ", ", axis);
  return fmt::format("dense<[{}]> : tensor<{}xindex>", order, shape.rank());
}

// A string in MLIR's text.
std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text)
    out += c == '"' ? std::string("\\22") : c == '\\' ? std::string("\\5C") : std::string(1, c);
  return out;
}

}  // namespace

graph::Value call_kernel(graph::Writer& w, std::string_view name, std::string_view config,
                         std::span<const graph::Value> operands, const graph::TensorType& result) {
  std::string names, types, layouts;
  for (const graph::Value& x : operands) {
    std::string_view comma = names.empty() ? "" : ", ";
    names.append(comma).append(x.name);
    types.append(comma).append(graph::stablehlo_type(x.type));
    layouts.append(comma).append(layout(x.type.shape));
  }
  return w.line(
      result,
      fmt::format(
          "stablehlo.custom_call @tpu_custom_call({}) {{backend_config = \"{}\", kernel_name = \"{}\", "
          "operand_layouts = [{}], result_layouts = [{}]}}",
          names, escaped(config), name, layouts, layout(result.shape)),
      fmt::format("({}) -> {}", types, graph::stablehlo_type(result)));
}

}  // namespace tessera::kernels::tpu
