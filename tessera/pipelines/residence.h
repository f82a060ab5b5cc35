#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/nn/block_stream.h"
#include "tessera/nn/module.h"
#include "tessera/nn/parameter.h"
#include "tessera/runtime/context.h"

namespace tessera::pipelines {

// A model of a pipeline, with its weights. `name` is its folder in the checkpoint.
struct Component {
  std::string name;
  std::unique_ptr<nn::ParameterStore> store;
  nn::Module* module = nullptr;
  bool on_one_device = false;  // on the first of the mesh alone
};

// A component that knows its model's type. `model` is null if the checkpoint leaves it out.
template <typename Model>
struct Loaded : Component {
  std::unique_ptr<Model> model;
};

// What is kept off the device while it is idle.
enum class Offload {
  kNone,
  kModel,  // whole components
  kGroup,  // and, while a component runs, its repeated blocks but the one that runs and the next
};

// Where a pipeline's components live: all on a device (the default), or each on it only while it runs.
class Residence {
 public:
  Residence(Context& context, DType dtype) : context_(context), dtype_(dtype) {}
  Residence(const Residence&) = delete;
  Residence& operator=(const Residence&) = delete;

  // Components, in the pipeline's order; they outlive this. One without a model is passed over.
  void add(Component& component);

  // Moves every component there for good: the mesh's ranks have the weights together.
  void split_over(const graph::MeshPtr& mesh);
  // Moves every component there, to stay. Throws kInvalidArgument, as offload_to does, if they are split.
  void to(const graph::MeshPtr& mesh);
  // From now on a component is on the mesh only while it runs: as a whole, or block by block.
  void offload_to(const graph::MeshPtr& mesh, Offload offload);

  Context& context() const { return context_; }
  DType dtype() const { return dtype_; }
  // Where the work is done; the CPU if nobody said.
  const graph::MeshPtr& mesh() const;
  // Where that component is.
  graph::MeshPtr mesh(const Component& component) const;
  Offload offload() const { return offload_; }
  // Of all weights, on one device.
  std::int64_t weight_bytes() const;
  std::vector<Component*> components() const;

  // Held by a call of the pipeline. With offload, calls of several threads take turns, so that one component
  // is on the device at a time.
  std::unique_lock<std::mutex> turn() const;

  // The component's weights are on the device while this lives.
  class Use {
   public:
    Use(const Residence& residence, const Component& component);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    const Residence& residence_;
    std::size_t index_;
  };

 private:
  struct Place {
    Component* component;
    int users = 0;
    bool placed = false;
    std::unique_ptr<nn::BlockStream> stream = {};  // where its blocks come one by one
  };
  void place(Place& place) const;
  static void drop(Place& place);
  void drop_all();
  void move_all(const graph::MeshPtr& mesh);
  void refuse_split() const;

  Context& context_;
  DType dtype_;
  Offload offload_ = Offload::kNone;
  bool split_ = false;
  mutable graph::MeshPtr mesh_;
  mutable std::mutex mutex_;  // guards places_ and mesh_
  mutable std::mutex turn_;
  mutable std::vector<Place> places_;
};

}  // namespace tessera::pipelines
