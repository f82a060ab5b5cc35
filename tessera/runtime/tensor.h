#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "tessera/graph/node.h"

namespace tessera {

class Context;

// A handle on a value of the graph: pending, computed or failed. Copying copies the handle.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(graph::NodePtr node) : node_(std::move(node)) {}

  explicit operator bool() const { return node_ != nullptr; }
  const Shape& shape() const { return node_->type().shape; }
  std::int64_t dim(int axis) const { return node_->type().shape[axis]; }
  DType dtype() const { return node_->type().dtype; }
  const graph::MeshPtr& mesh() const { return node_->mesh(); }
  const graph::NodePtr& node() const { return node_; }

  // The dense bytes of the array (of its first replica). Waits for it; counts as a host transfer. Throws the
  // error of whatever failed on the way.
  std::vector<std::byte> to_bytes() const;
  // The elements of a floating-point tensor, as f32.
  std::vector<float> to_f32() const;

 private:
  graph::NodePtr node_;
};

// Records an operation on the operands (all on one mesh) and lets the execution mode decide when it runs.
Tensor record(const graph::OpDef& op, graph::Attributes attributes, std::initializer_list<Tensor> operands);
Tensor record(const graph::OpDef& op, graph::Attributes attributes, std::span<const Tensor> operands);

}  // namespace tessera
