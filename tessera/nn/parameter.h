#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/checkpoint/tensor_source.h"
#include "tessera/nn/tensor_parallel.h"
#include "tessera/runtime/context.h"

namespace tessera::nn {

// Receives named intermediate tensors of a forward pass, for tests and debugging.
using Observer = std::function<void(const std::string& name, const Tensor& tensor)>;

// A handle on one weight: where it comes from, and its tensor once the component is on a device.
class Parameter {
 public:
  Parameter() = default;
  // Whether this weight exists (an optional one may not).
  explicit operator bool() const { return state_ != nullptr; }
  const std::string& path() const { return state_->path; }
  // Of the whole weight, of which a rank may have a part.
  const Shape& shape() const { return state_->shape; }
  // Throws kInternal, naming it, if the component is not on a device.
  const Tensor& tensor() const;

 private:
  friend class ParameterStore;
  struct State {
    std::string path;
    Shape shape;
    bool shared = false;    // used outside the block that its name puts it into
    int sharded_axis = -1;  // shared out over the ranks as the style says; -1: each has all of it
    const TensorParallelStyle* style = nullptr;
    const checkpoint::TensorView* source = nullptr;
    Tensor tensor;
    std::atomic<bool> wanted = true;
  };
  std::shared_ptr<State> state_;
};

class ParameterStore;

// A place in a component's tree of names: scope / "transformer_blocks" / 3 / "attn".
class Scope {
 public:
  Scope operator/(std::string_view name) const;
  Scope operator/(int index) const { return *this / std::string_view(std::to_string(index)); }
  // Asks for the weight `name` of that shape, the whole one's. With a style its axis `sharded_axis` is shared
  // out over the ranks. What does not fit is reported by ParameterStore::finish.
  Parameter parameter(std::string_view name, const Shape& shape, const TensorParallelStyle* style = nullptr,
                      int sharded_axis = 0) const;
  // How the plan shares out the layer of this name; null where every rank has all of it. Valid as long as the
  // store.
  const TensorParallelStyle* style() const;
  // Over how many ranks the component's weights are shared out.
  int ranks() const;
  bool has(std::string_view name) const;
  // The same place, whose weights are used outside the repeated block that their names put them into.
  Scope outside_blocks() const {
    Scope out = *this;
    out.shared_ = true;
    return out;
  }
  // Names that start like this one are not used by the model, and are no mistake.
  void ignore(std::string_view prefix) const;
  const std::string& path() const { return path_; }

 private:
  friend class ParameterStore;
  Scope(ParameterStore& store, std::string path) : store_(&store), path_(std::move(path)) {}
  std::string join(std::string_view name) const;
  ParameterStore* store_;
  std::string path_;
  bool shared_ = false;
};

// The weights of one component: built while its model is, checked as a whole, placed on a device and dropped
// again.
//
// Where several ranks share the weights out, each reads and holds its part of those that the plan names.
class ParameterStore {
 public:
  struct Sharding {
    TensorParallelPlan plan = {};
    int ranks = 1;
  };
  explicit ParameterStore(checkpoint::TensorSource source) : source_(std::move(source)) {}
  ParameterStore(checkpoint::TensorSource source, Sharding sharding)
      : source_(std::move(source)), sharding_(std::move(sharding)) {}
  // A store without weights, for planning: each weight that is asked for is taken to be there.
  struct ShapesOnly {};
  explicit ParameterStore(ShapesOnly) : shapes_only_(true) {}
  ParameterStore(ShapesOnly, Sharding sharding) : shapes_only_(true), sharding_(std::move(sharding)) {}
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  Scope root() { return Scope(*this, ""); }
  // Throws one kDataLoss error that lists what is missing, unexpected and misshapen, with counts.
  void finish() const;
  // What is wrong with the plan, a line each: layers that it names and the model does not have, parts that
  // the ranks cannot share evenly. Known when the model is built, before a weight is read.
  std::vector<std::string> plan_faults() const;
  int ranks() const { return sharding_.ranks; }
  // From now on only weights for whose path `wanted` holds are placed and counted; at first all are. Those
  // that are on a device stay there.
  using Wanted = std::function<bool(std::string_view path)>;
  void want(const Wanted& wanted);
  // Uploads every wanted weight as `dtype`, to each device of the mesh what its rank has of it. Anything on a
  // device before is dropped. A mesh of a sharded component has the component's ranks.
  void place(Context& context, const graph::MeshPtr& mesh, DType dtype);
  // Uploads the wanted weights that are not on a device. Others may be in use meanwhile.
  void place_missing(Context& context, const graph::MeshPtr& mesh, DType dtype);
  // Gives every wanted weight of a store of shapes a tensor without data, on a mesh whose evaluator does
  // without.
  void place_shapes(const graph::MeshPtr& mesh, DType dtype);
  // Frees the device's copies.
  void drop();

  // Some of the weights: those of one repeated block, or those of none.
  class Part {
   public:
    // "transformer_blocks.3"; empty for what belongs to no block.
    const std::string& path() const { return path_; }

   private:
    friend class ParameterStore;
    std::string path_;
    std::vector<std::shared_ptr<Parameter::State>> parameters_;
  };
  // The repeated blocks, in the model's order: what is named alike up to the first number in the name. Of the
  // wanted weights.
  std::vector<Part> blocks() const;
  Part outside_blocks() const;
  // Uploads those of the part that are not on a device, and frees them. May go on in a thread beside work
  // with other parts.
  void place(const Part& part, Context& context, const graph::MeshPtr& mesh, DType dtype);
  void drop(const Part& part);
  // Bytes that the wanted weights take as `dtype`; of one device.
  std::int64_t bytes(DType dtype) const;
  // As placed; 0 if they are not.
  std::int64_t bytes() const { return placed_bytes_; }
  // Bytes of tensor data, as stored, that each rank has read so far; the files' headers come on top.
  std::int64_t bytes_read() const { return bytes_read_; }
  std::size_t size() const { return parameters_.size(); }
  // Of every weight that the model has asked for: its name and its shape as a whole.
  std::vector<std::pair<std::string, Shape>> shapes() const;

 private:
  friend class Scope;
  using State = Parameter::State;
  Parameter add(const std::string& path, const Shape& shape, const TensorParallelStyle* style, int axis,
                bool shared);
  void place(State& state, Context& context, const graph::MeshPtr& mesh, DType dtype);
  std::vector<Part> parts() const;
  const TensorParallelStyle* style(std::string_view path);
  // Of what each rank has.
  Shape local_shape(const State& state) const;
  Tensor upload(const State& state, Context& context, const graph::MeshPtr& mesh, DType dtype);
  Tensor upload_shards(const State& state, Context& context, const graph::MeshPtr& mesh, DType dtype);

  bool shapes_only_ = false;
  checkpoint::TensorSource source_;
  Sharding sharding_;
  std::set<const TensorParallelPlan::Entry*> used_entries_;
  std::vector<std::shared_ptr<Parameter::State>> parameters_;
  std::set<std::string, std::less<>> used_;
  std::vector<std::string> ignored_, missing_, misshapen_;
  std::atomic<std::int64_t> placed_bytes_ = 0, bytes_read_ = 0;
};

}  // namespace tessera::nn
