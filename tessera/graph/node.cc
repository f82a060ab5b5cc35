#include "tessera/graph/node.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tessera/base/error.h"

namespace tessera::graph {
namespace {

thread_local std::shared_ptr<const std::string> current_location;

// The types of an operation's operands, held in place for the usual few.
TensorType infer(const OpDef& op, const Attributes& attributes, std::span<const NodePtr> operands) {
  std::vector<TensorType> types;
  types.reserve(operands.size());
  for (const NodePtr& operand : operands) types.push_back(operand->type());
  try {
    return op.infer(attributes, types);
  } catch (const Error& error) {
    if (!current_location) throw;
    throw Error(error.code(), fmt::format("{} (in {})", error.what(), *current_location));
  }
}

}  // namespace

std::string to_string(const TensorType& type) {
  return fmt::format("{}{}", dtype_name(type.dtype), to_string(type.shape));
}

Node::Node(const OpDef& op, Attributes attributes, std::vector<NodePtr> operands)
    : op_(&op),
      attributes_(std::move(attributes)),
      operands_(std::move(operands)),
      type_(infer(op, attributes_, operands_)),
      where_(current_location) {
  check_internal(!operands_.empty(), "an operation without operands has no mesh");
  mesh_ = operands_.front()->mesh();
  for (const NodePtr& operand : operands_) {
    if (operand->mesh() != mesh_) {
      invalid_argument("{}: operands on different meshes ({} and {}); move one with to()", op.name,
                       mesh_->device, operand->mesh()->device);
    }
  }
}

Node::Node(TensorType type, MeshPtr mesh, std::vector<pjrt::BufferPtr> buffers)
    : state_(State::kMaterialised), type_(type), mesh_(std::move(mesh)), buffers_(std::move(buffers)) {}

Node::~Node() {
  std::vector<NodePtr> doomed = std::move(operands_);
  while (!doomed.empty()) {
    NodePtr node = std::move(doomed.back());
    doomed.pop_back();
    // The last owner takes over what the node owns.
    if (node.use_count() != 1) continue;
    std::ranges::move(node->operands_, std::back_inserter(doomed));
    node->operands_.clear();
  }
}

const std::vector<pjrt::BufferPtr>& Node::buffers() const {
  if (state_ == State::kFailed) std::rethrow_exception(error_);
  check_internal(state_ == State::kMaterialised, "the buffers of a pending node were asked for");
  return buffers_;
}

void Node::materialise(std::vector<pjrt::BufferPtr> buffers) {
  buffers_ = std::move(buffers);
  operands_.clear();
  state_ = State::kMaterialised;
}

void Node::set_error(std::exception_ptr error) {
  error_ = std::move(error);
  operands_.clear();
  state_ = State::kFailed;
}

ScopedLocation::ScopedLocation(std::shared_ptr<const std::string> where)
    : previous_(std::exchange(current_location, std::move(where))) {}
ScopedLocation::~ScopedLocation() { current_location = std::move(previous_); }
const std::shared_ptr<const std::string>& ScopedLocation::current() { return current_location; }

}  // namespace tessera::graph
