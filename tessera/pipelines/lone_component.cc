#include "tessera/pipelines/lone_component.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/quote.h"
#include "tessera/base/random.h"
#include "tessera/ops/ops.h"
#include "tessera/pipelines/loading.h"

namespace tessera::pipelines {
namespace {

class RandomInputs : public CallInputs {
 public:
  RandomInputs(Context& context, graph::MeshPtr mesh, DType dtype)
      : context_(context), mesh_(std::move(mesh)), dtype_(dtype) {}
  Context& context() const override { return context_; }
  const graph::MeshPtr& mesh() const override { return mesh_; }
  Tensor values(const Shape& shape) override {
    return ops::cast(context_.from_f32(generator_.randn(shape.elements()), shape, mesh_), dtype_);
  }
  Tensor numbers(float value, std::int64_t batch) override {
    return context_.from_f32(std::vector<float>(static_cast<std::size_t>(batch), value), {batch}, mesh_);
  }
  // None of the first and last few, which are often special.
  std::vector<std::int32_t> ids(std::int64_t count, std::int64_t vocab_size) override {
    std::mt19937 random(1);
    std::vector<std::int32_t> out(static_cast<std::size_t>(count));
    auto range = static_cast<std::uint32_t>(std::max<std::int64_t>(1, vocab_size - 5));
    for (std::int32_t& id : out)
      id = static_cast<std::int32_t>(std::min<std::int64_t>(vocab_size - 1, 3 + random() % range));
    return out;
  }

 private:
  Context& context_;
  graph::MeshPtr mesh_;
  DType dtype_;
  Generator generator_{1};
};

template <typename Model, typename Config>
class Alone : public LoneComponent {
 public:
  Alone(const checkpoint::ModelFolder& folder, const std::string& name)
      : class_name_(folder.require_component(name).class_name),
        loaded_(Loader(folder).model<Model, Config>(name)) {
    want_what_is_called(*loaded_.model, *loaded_.store);
  }
  Component& component() override { return loaded_; }
  const std::string& class_name() const override { return class_name_; }
  ComponentCall call(const CallSizes& sizes, Context& context, const graph::MeshPtr& mesh,
                     DType dtype) const override {
    RandomInputs inputs(context, mesh, dtype);
    return prepare_call(*loaded_.model, sizes, inputs);
  }

 private:
  std::string class_name_;
  Loaded<Model> loaded_;
};

}  // namespace

std::unique_ptr<LoneComponent> LoneComponent::load(const checkpoint::ModelFolder& folder,
                                                   const std::string& name) {
  std::vector<std::string> names = folder.component_names();
  if (std::ranges::find(names, name) == names.end()) {
    invalid_argument("{} has no component {}; its components are {}", folder.path().string(), quote(name),
                     fmt::join(names, ", "));
  }
  std::string class_name = folder.require_component(name).class_name, known;
  std::unique_ptr<LoneComponent> out;
  for_each_model_class([&]<typename Class>(const Class& c) {
    if (class_name == c.name)
      out = std::make_unique<Alone<typename Class::Model, typename Class::Config>>(folder, name);
    known += (known.empty() ? "" : ", ") + std::string(c.name);
  });
  if (out) return out;
  fail(ErrorCode::kUnimplemented,
       "{}: the component {} is of the class {}, which cannot be run by itself; those are {}",
       folder.path().string(), name, quote(class_name), known);
}

}  // namespace tessera::pipelines
