#pragma once

#include <memory>
#include <string>

#include "tessera/checkpoint/model_folder.h"
#include "tessera/pipelines/component_call.h"
#include "tessera/pipelines/residence.h"

namespace tessera::pipelines {

// One component of a checkpoint, of any pipeline, to be run by itself on random input. Needs no tokenizer.
class LoneComponent {
 public:
  virtual ~LoneComponent() = default;
  // Reads and checks the component; nothing goes to a device. Throws kInvalidArgument, listing those there
  // are, for a component that the checkpoint does not have, and kUnimplemented, listing the classes there
  // are, for one of another class.
  static std::unique_ptr<LoneComponent> load(const checkpoint::ModelFolder& folder, const std::string& name);

  virtual Component& component() = 0;
  // "FluxTransformer2DModel"
  virtual const std::string& class_name() const = 0;
  // Uploads random input; the function that is returned does one call of the component, which is on that
  // mesh, and outlives it. Throws kInvalidArgument for sizes that the component cannot take.
  virtual ComponentCall call(const CallSizes& sizes, Context& context, const graph::MeshPtr& mesh,
                             DType dtype) const = 0;
};

}  // namespace tessera::pipelines
