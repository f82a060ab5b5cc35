#pragma once

#include <memory>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/graph/program.h"
#include "tessera/graph/shape_rules.h"

// Graphs that are looked at, not run.
namespace tessera::graph::testing {

class NoEvaluator : public Evaluator {
 public:
  void recorded(const NodePtr&) override {}
  void evaluate(std::span<const NodePtr>, Liveness) override {}
  std::vector<std::byte> read(const NodePtr&) override { return {}; }
};

inline MeshPtr make_mesh(std::string platform = "cpu", int devices = 1) {
  static NoEvaluator evaluator;
  auto mesh = std::make_shared<Mesh>();
  mesh->device = mesh->platform = std::move(platform);
  for (int i = 0; i < devices; ++i) mesh->devices.push_back(i);
  mesh->evaluator = &evaluator;
  return mesh;
}

inline const MeshPtr& mesh() {
  static const MeshPtr one = make_mesh();
  return one;
}

// A value without buffers: an argument of programs that are not run.
inline NodePtr leaf(DType dtype, Shape shape, const MeshPtr& on = mesh()) {
  return std::make_shared<Node>(TensorType{dtype, shape}, on, std::vector<pjrt::BufferPtr>{});
}
inline NodePtr f32(Shape shape) { return leaf(DType::kF32, shape); }
inline NodePtr bf16(Shape shape) { return leaf(DType::kBF16, shape); }

inline NodePtr node(const OpDef& op, Attributes attributes, std::vector<NodePtr> operands) {
  return std::make_shared<Node>(op, std::move(attributes), std::move(operands));
}

inline Fingerprint fingerprint(std::vector<NodePtr> outputs) { return cut(outputs).fingerprint; }

// The message of the Error that `f` throws, and its code.
template <typename F>
std::pair<ErrorCode, std::string> error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return {e.code(), e.what()};
  }
  return {ErrorCode::kInternal, "nothing was thrown"};
}

}  // namespace tessera::graph::testing
