#include "tessera/runtime/tensor.h"

#include "tessera/base/error.h"
#include "tessera/base/half.h"

namespace tessera {

std::vector<std::byte> Tensor::to_bytes() const {
  check_internal(node_ != nullptr, "an empty tensor was read");
  return mesh()->evaluator->read(node_);
}

std::vector<float> Tensor::to_f32() const {
  std::vector<std::byte> bytes = to_bytes();
  std::vector<float> values(static_cast<std::size_t>(shape().elements()));
  convert_elements(dtype(), bytes.data(), DType::kF32, reinterpret_cast<std::byte*>(values.data()),
                   shape().elements());
  return values;
}

Tensor record(const graph::OpDef& op, graph::Attributes attributes, std::span<const Tensor> operands) {
  std::vector<graph::NodePtr> nodes;
  nodes.reserve(operands.size());
  for (const Tensor& t : operands) {
    if (!t) invalid_argument("{}: an operand is empty", op.name);
    nodes.push_back(t.node());
  }
  auto node = std::make_shared<graph::Node>(op, std::move(attributes), std::move(nodes));
  node->mesh()->evaluator->recorded(node);
  return Tensor(std::move(node));
}

Tensor record(const graph::OpDef& op, graph::Attributes attributes, std::initializer_list<Tensor> operands) {
  return record(op, std::move(attributes), std::span(operands.begin(), operands.size()));
}

}  // namespace tessera
