#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/base/shape.h"
#include "tessera/graph/attributes.h"
#include "tessera/pjrt/pjrt.h"

namespace tessera::graph {

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// "bf16[1, 4096, 3072]"
std::string to_string(const TensorType& type);

class Node;
using NodePtr = std::shared_ptr<Node>;

// What is known of who holds the nodes that are evaluated.
enum class Liveness {
  kUnknown,
  kOutputsOnly,  // of the nodes that the program computes, only its outputs are held outside the graph
};

// Turns pending nodes into values. The runtime's Context is the one implementation.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  // A node has just been made; the execution mode decides whether a program is cut now.
  virtual void recorded(const NodePtr& node) = 0;
  // Materialises (or fails) the given pending nodes, which share a mesh. With kOutputsOnly, the memory of
  // operands that nobody else holds may become the results'.
  virtual void evaluate(std::span<const NodePtr> nodes, Liveness liveness = Liveness::kUnknown) = 0;
  // The dense bytes of a node's first replica; evaluates it and waits.
  virtual std::vector<std::byte> read(const NodePtr& node) = 0;
};

// Where a tensor lives: devices of one client, each a rank of a model that is split over them. Part of a
// tensor's type; operands of an operation share one mesh.
//
// The ranks may be spread over several processes, each with its own devices of them.
struct Mesh {
  std::string device;        // the name the user gave: "cpu", "tpu", "cuda"
  std::string platform;      // what serves it: lowerings are chosen by this
  std::vector<int> devices;  // positions in the client's list of devices
  Evaluator* evaluator = nullptr;
  int client = 0;           // which of the evaluator's clients
  int first_rank = 0;       // of the first device here; the others follow
  int ranks_elsewhere = 0;  // in other processes

  // Devices of this process.
  int size() const { return static_cast<int>(devices.size()); }
  // In all processes together.
  int ranks() const { return size() + ranks_elsewhere; }
};
using MeshPtr = std::shared_ptr<const Mesh>;

// One kind of operation: its name and its shape rule. Lowerings are registered beside it by name
// (lowering.h).
struct OpDef {
  std::string_view name;
  // The shape rule, which several operations may share; `op` is the name for its error.
  TensorType (*rule)(std::string_view op, const Attributes& attributes, std::span<const TensorType> operands);

  // The result's type. Throws kInvalidArgument that names the operation and the offending types.
  TensorType infer(const Attributes& attributes, std::span<const TensorType> operands) const {
    return rule(name, attributes, operands);
  }
};

// A value that a program computes or that a buffer holds: pending, materialised or failed.
class Node {
 public:
  enum class State { kPending, kMaterialised, kFailed };

  // A pending operation; its type comes from the shape rule, whose error also names `where`.
  Node(const OpDef& op, Attributes attributes, std::vector<NodePtr> operands);
  // A value that is there already: one buffer per device of the mesh.
  Node(TensorType type, MeshPtr mesh, std::vector<pjrt::BufferPtr> buffers);
  // Frees the graph below it without recursion: a pending graph can be deep.
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  State state() const { return state_; }
  const TensorType& type() const { return type_; }
  const MeshPtr& mesh() const { return mesh_; }
  // Null for a node that was made from buffers.
  const OpDef* op() const { return op_; }
  const Attributes& attributes() const { return attributes_; }
  const std::vector<NodePtr>& operands() const { return operands_; }
  // The place in the model that made it ("transformer_blocks.3.attn.to_q"), empty if unknown.
  std::string_view where() const { return where_ ? std::string_view(*where_) : std::string_view(); }

  // The buffers of a materialised node, one per device of its mesh. Throws a failed node's error.
  const std::vector<pjrt::BufferPtr>& buffers() const;

  // Called by the evaluator. Either forgets the operands, so that they can be freed.
  void materialise(std::vector<pjrt::BufferPtr> buffers);
  void set_error(std::exception_ptr error);

 private:
  State state_ = State::kPending;
  const OpDef* op_ = nullptr;
  Attributes attributes_;
  std::vector<NodePtr> operands_;
  TensorType type_;
  MeshPtr mesh_;
  std::shared_ptr<const std::string> where_;
  std::vector<pjrt::BufferPtr> buffers_;
  std::exception_ptr error_;
};

// Names the part of the model whose operations are being recorded on this thread, for error messages.
class ScopedLocation {
 public:
  explicit ScopedLocation(std::shared_ptr<const std::string> where);
  ~ScopedLocation();
  ScopedLocation(const ScopedLocation&) = delete;
  ScopedLocation& operator=(const ScopedLocation&) = delete;
  static const std::shared_ptr<const std::string>& current();

 private:
  std::shared_ptr<const std::string> previous_;
};

}  // namespace tessera::graph
