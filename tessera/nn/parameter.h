#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/checkpoint/tensor_source.h"
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
  const Shape& shape() const { return state_->shape; }
  // Throws kInternal, naming it, if the component is not on a device.
  const Tensor& tensor() const;

 private:
  friend class ParameterStore;
  struct State {
    std::string path;
    Shape shape;
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
  // Asks for the weight `name` of that shape. What does not fit is reported by ParameterStore::finish.
  Parameter parameter(std::string_view name, const Shape& shape) const;
  bool has(std::string_view name) const;
  // Names that start like this one are not used by the model, and are no mistake.
  void ignore(std::string_view prefix) const;
  const std::string& path() const { return path_; }

 private:
  friend class ParameterStore;
  Scope(ParameterStore& store, std::string path) : store_(&store), path_(std::move(path)) {}
  std::string join(std::string_view name) const;
  ParameterStore* store_;
  std::string path_;
};

// The weights of one component: built while its model is, checked as a whole, placed on a device and dropped
// again.
class ParameterStore {
 public:
  explicit ParameterStore(checkpoint::TensorSource source) : source_(std::move(source)) {}
  // A store without weights, for planning: each weight that is asked for is taken to be there.
  struct ShapesOnly {};
  explicit ParameterStore(ShapesOnly) : shapes_only_(true) {}
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  Scope root() { return Scope(*this, ""); }
  // Throws one kDataLoss error that lists what is missing, unexpected and misshapen, with counts.
  void finish() const;
  // From now on only weights for whose path `wanted` holds are placed and counted; at first all are. Those
  // that are on a device stay there.
  using Wanted = std::function<bool(std::string_view path)>;
  void want(const Wanted& wanted);
  // Uploads every wanted weight as `dtype`. Anything on a device before is dropped.
  void place(Context& context, const graph::MeshPtr& mesh, DType dtype);
  // Uploads the wanted weights that are not on a device. Others may be in use meanwhile.
  void place_missing(Context& context, const graph::MeshPtr& mesh, DType dtype);
  // Gives every wanted weight of a store of shapes a tensor without data, on a mesh whose evaluator does
  // without.
  void place_shapes(const graph::MeshPtr& mesh, DType dtype);
  // Frees the device's copies.
  void drop();
  // Bytes that the wanted weights take as `dtype`; of one device.
  std::int64_t bytes(DType dtype) const;
  // As placed; 0 if they are not.
  std::int64_t bytes() const { return placed_bytes_; }
  std::size_t size() const { return parameters_.size(); }

 private:
  friend class Scope;
  Parameter add(const std::string& path, const Shape& shape);

  bool shapes_only_ = false;
  checkpoint::TensorSource source_;
  std::vector<std::shared_ptr<Parameter::State>> parameters_;
  std::set<std::string, std::less<>> used_;
  std::vector<std::string> ignored_, missing_, misshapen_;
  std::atomic<std::int64_t> placed_bytes_ = 0;
};

}  // namespace tessera::nn
