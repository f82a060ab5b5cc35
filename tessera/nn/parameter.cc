#include "tessera/nn/parameter.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/checkpoint/host_block.h"

namespace tessera::nn {
namespace {

// "2 missing: a, b" with the first ten names.
std::string list(std::string_view what, const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 10;
  std::string out = fmt::format(
      "{} {}: {}", names.size(), what,
      fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kShown)),
                ", "));
  if (names.size() > kShown) out += fmt::format(" and {} more", names.size() - kShown);
  return out;
}

// The weight on the device, converted on the host into memory that the device may keep.
Tensor upload(const checkpoint::TensorView& source, Context& context, const graph::MeshPtr& mesh,
              DType dtype) {
  constexpr std::uintptr_t kAlignment = checkpoint::HostBlock::kAlignment;
  bool as_it_is =
      source.dtype == dtype && reinterpret_cast<std::uintptr_t>(source.data.data()) % kAlignment == 0;
  if (as_it_is)
    return context.from_host(source.data, dtype, source.shape, mesh, source.owner, /*parameter=*/true);
  auto block = std::make_shared<checkpoint::HostBlock>(checkpoint::read_tensor(source, dtype));
  std::span<const std::byte> bytes = std::as_const(*block).bytes();
  return context.from_host(bytes, dtype, source.shape, mesh, std::move(block), /*parameter=*/true);
}

}  // namespace

const Tensor& Parameter::tensor() const {
  if (!state_->tensor)
    fail(ErrorCode::kInternal, "the weight {} is used before it is on a device", state_->path);
  return state_->tensor;
}

std::string Scope::join(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

Scope Scope::operator/(std::string_view name) const { return Scope(*store_, join(name)); }
bool Scope::has(std::string_view name) const { return store_->source_.contains(join(name)); }
void Scope::ignore(std::string_view prefix) const { store_->ignored_.push_back(join(prefix)); }
Parameter Scope::parameter(std::string_view name, const Shape& shape) const {
  return store_->add(join(name), shape);
}

Parameter ParameterStore::add(const std::string& path, const Shape& shape) {
  Parameter parameter;
  parameter.state_ = std::make_shared<Parameter::State>();
  parameter.state_->path = path;
  parameter.state_->shape = shape;
  const checkpoint::TensorView* source = source_.find(path);
  if (source == nullptr) {
    if (!shapes_only_) missing_.push_back(path);
  } else if (source->shape != shape) {
    misshapen_.push_back(
        fmt::format("{} is {}, the config says {}", path, to_string(source->shape), to_string(shape)));
  }
  parameter.state_->source = source;
  used_.insert(path);
  parameters_.push_back(parameter.state_);
  return parameter;
}

void ParameterStore::finish() const {
  std::vector<std::string> unexpected;
  for (const checkpoint::TensorView& tensor : source_.tensors()) {
    bool known = used_.contains(tensor.name) || std::ranges::any_of(ignored_, [&](const std::string& prefix) {
                   return tensor.name.starts_with(prefix);
                 });
    if (!known) unexpected.push_back(tensor.name);
  }
  std::vector<std::string> parts;
  if (!missing_.empty()) parts.push_back(list("missing", missing_));
  if (!unexpected.empty()) parts.push_back(list("unexpected", unexpected));
  if (!misshapen_.empty()) parts.push_back(list("misshapen", misshapen_));
  if (!parts.empty()) {
    fail(ErrorCode::kDataLoss, "{}: the tensors do not fit the config; {}", source_.name(),
         fmt::join(parts, "; "));
  }
}

void ParameterStore::want(const Wanted& wanted) {
  for (const auto& state : parameters_) state->wanted = wanted(state->path);
}

void ParameterStore::place(Context& context, const graph::MeshPtr& mesh, DType dtype) {
  drop();
  place_missing(context, mesh, dtype);
}

void ParameterStore::place_missing(Context& context, const graph::MeshPtr& mesh, DType dtype) {
  for (const auto& state : parameters_) {
    if (!state->wanted || state->tensor) continue;
    check_internal(state->source != nullptr, "weights are placed before they were checked");
    Tensor tensor = upload(*state->source, context, mesh, dtype);
    placed_bytes_ += tensor.node()->buffers().at(0)->size_on_device();
    state->tensor = std::move(tensor);
  }
}

void ParameterStore::place_shapes(const graph::MeshPtr& mesh, DType dtype) {
  check_internal(shapes_only_, "a store of weights is placed as shapes");
  for (const auto& state : parameters_) {
    if (!state->wanted) continue;
    graph::TensorType type{dtype, state->shape};
    state->tensor = Tensor(std::make_shared<graph::Node>(type, mesh, std::vector<pjrt::BufferPtr>{}));
  }
}

void ParameterStore::drop() {
  for (const auto& state : parameters_) state->tensor = Tensor();
  placed_bytes_ = 0;
}

std::int64_t ParameterStore::bytes(DType dtype) const {
  std::int64_t total = 0;
  for (const auto& state : parameters_) {
    if (state->wanted) total += dtype_bytes(dtype, state->shape.elements());
  }
  return total;
}

}  // namespace tessera::nn
