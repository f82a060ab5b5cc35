#include "tessera/nn/parameter.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

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

// Whether the device may use these bytes of a file as they are.
bool usable_in_place(const checkpoint::TensorView& source, std::span<const std::byte> bytes, DType dtype) {
  constexpr std::uintptr_t kAlignment = checkpoint::HostBlock::kAlignment;
  return source.dtype == dtype && reinterpret_cast<std::uintptr_t>(bytes.data()) % kAlignment == 0;
}

// "transformer_blocks.3.attn.to_q.weight" -> "transformer_blocks.3"; empty for a name without a number.
std::string block_of(const std::string& path) {
  for (std::size_t begin = 0; begin < path.size();) {
    std::size_t end = std::min(path.find('.', begin), path.size());
    std::string_view name = std::string_view(path).substr(begin, end - begin);
    if (!name.empty() && name.find_first_not_of("0123456789") == name.npos) return path.substr(0, end);
    begin = end + 1;
  }
  return "";
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

Scope Scope::operator/(std::string_view name) const {
  Scope out(*store_, join(name));
  out.shared_ = shared_;
  return out;
}
bool Scope::has(std::string_view name) const { return store_->source_.contains(join(name)); }
void Scope::ignore(std::string_view prefix) const { store_->ignored_.push_back(join(prefix)); }
Parameter Scope::parameter(std::string_view name, const Shape& shape, const TensorParallelStyle* style,
                           int sharded_axis) const {
  return store_->add(join(name), shape, style, sharded_axis, shared_);
}

const TensorParallelStyle* Scope::style() const { return store_->style(path_); }
int Scope::ranks() const { return store_->ranks(); }

const TensorParallelStyle* ParameterStore::style(std::string_view path) {
  for (const TensorParallelPlan::Entry& entry : sharding_.plan.entries) {
    if (!matches(entry.pattern, path)) continue;
    used_entries_.insert(&entry);
    return sharding_.ranks > 1 ? &entry.style : nullptr;
  }
  return nullptr;
}

Parameter ParameterStore::add(const std::string& path, const Shape& shape, const TensorParallelStyle* style,
                              int axis, bool shared) {
  Parameter parameter;
  parameter.state_ = std::make_shared<State>();
  parameter.state_->path = path;
  parameter.state_->shape = shape;
  parameter.state_->shared = shared;
  if (style != nullptr) {
    parameter.state_->style = style;
    parameter.state_->sharded_axis = axis;
  }
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

std::vector<std::string> ParameterStore::plan_faults() const {
  std::vector<std::string> out;
  for (const TensorParallelPlan::Entry& entry : sharding_.plan.entries) {
    if (!used_entries_.contains(&entry)) {
      out.push_back(fmt::format("the plan names {}, which the model does not have", entry.pattern));
    } else if (std::string why = misfit(entry.style, sharding_.ranks); !why.empty()) {
      out.push_back(fmt::format("{} ({})", entry.pattern, why));
    }
  }
  for (const auto& state : parameters_) {
    if (state->sharded_axis < 0) continue;
    std::int64_t width = 0;
    for (const PackedPart& part : state->style->parts) width += part.width;
    if (std::int64_t extent = state->shape[state->sharded_axis]; width != extent)
      out.push_back(fmt::format("the plan shares out {} of the {} of {}", width, extent, state->path));
  }
  return out;
}

Shape ParameterStore::local_shape(const State& state) const {
  if (state.sharded_axis < 0) return state.shape;
  Shape out = state.shape;
  out.set(state.sharded_axis, local_width(*state.style, sharding_.ranks));
  return out;
}

// Converted on the host into memory that the device may keep.
Tensor ParameterStore::upload(const State& state, Context& context, const graph::MeshPtr& mesh, DType dtype) {
  if (state.sharded_axis >= 0) return upload_shards(state, context, mesh, dtype);
  const checkpoint::TensorView& source = *state.source;
  bytes_read_ += static_cast<std::int64_t>(source.data.size());
  if (usable_in_place(source, source.data, dtype))
    return context.from_host(source.data, dtype, source.shape, mesh, source.owner, /*parameter=*/true);
  auto block = std::make_shared<checkpoint::HostBlock>(checkpoint::read_tensor(source, dtype));
  std::span<const std::byte> bytes = std::as_const(*block).bytes();
  return context.from_host(bytes, dtype, source.shape, mesh, std::move(block), /*parameter=*/true);
}

Tensor ParameterStore::upload_shards(const State& state, Context& context, const graph::MeshPtr& mesh,
                                     DType dtype) {
  check_internal(mesh->ranks() == sharding_.ranks, "a component is placed on a mesh of other ranks");
  const checkpoint::TensorView& source = *state.source;
  Shape shape = local_shape(state);
  bytes_read_ += dtype_bytes(source.dtype, shape.elements());
  std::vector<std::span<const std::byte>> shards;
  std::vector<std::shared_ptr<const void>> owners;
  for (int local = 0; local < mesh->size(); ++local) {
    std::vector<checkpoint::Stretch> mine =
        stretches(*state.style, mesh->first_rank + local, sharding_.ranks);
    auto in_place = checkpoint::contiguous_stretch(source, state.sharded_axis, mine);
    if (in_place && usable_in_place(source, *in_place, dtype)) {
      shards.push_back(*in_place);
      owners.push_back(source.owner);
      continue;
    }
    auto block = std::make_shared<checkpoint::HostBlock>(
        checkpoint::read_stretches(source, state.sharded_axis, mine, dtype));
    shards.push_back(std::as_const(*block).bytes());
    owners.push_back(std::move(block));
  }
  return context.from_shards(shards, dtype, shape, mesh, owners, /*parameter=*/true);
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
    if (state->wanted) place(*state, context, mesh, dtype);
  }
}

void ParameterStore::place(State& state, Context& context, const graph::MeshPtr& mesh, DType dtype) {
  if (state.tensor) return;
  check_internal(state.source != nullptr, "weights are placed before they were checked");
  Tensor tensor = upload(state, context, mesh, dtype);
  placed_bytes_ += tensor.node()->buffers().at(0)->size_on_device();
  state.tensor = std::move(tensor);
}

void ParameterStore::place(const Part& part, Context& context, const graph::MeshPtr& mesh, DType dtype) {
  for (const auto& state : part.parameters_) place(*state, context, mesh, dtype);
}

void ParameterStore::drop(const Part& part) {
  for (const auto& state : part.parameters_) {
    if (!state->tensor) continue;
    placed_bytes_ -= state->tensor.node()->buffers().at(0)->size_on_device();
    state->tensor = Tensor();
  }
}

// In the order of their first weights.
std::vector<ParameterStore::Part> ParameterStore::parts() const {
  std::vector<Part> out;
  std::map<std::string, std::size_t, std::less<>> numbers;
  for (const auto& state : parameters_) {
    if (!state->wanted) continue;
    std::string block = state->shared ? "" : block_of(state->path);
    auto [found, is_new] = numbers.try_emplace(block, out.size());
    if (is_new) out.emplace_back().path_ = block;
    out[found->second].parameters_.push_back(state);
  }
  return out;
}

std::vector<ParameterStore::Part> ParameterStore::blocks() const {
  std::vector<Part> out = parts();
  std::erase_if(out, [](const Part& part) { return part.path().empty(); });
  return out;
}

ParameterStore::Part ParameterStore::outside_blocks() const {
  for (Part& part : parts()) {
    if (part.path().empty()) return std::move(part);
  }
  return {};
}

void ParameterStore::place_shapes(const graph::MeshPtr& mesh, DType dtype) {
  check_internal(shapes_only_, "a store of weights is placed as shapes");
  for (const auto& state : parameters_) {
    if (!state->wanted) continue;
    graph::TensorType type{dtype, local_shape(*state)};
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
    if (state->wanted) total += dtype_bytes(dtype, local_shape(*state).elements());
  }
  return total;
}

std::vector<std::pair<std::string, Shape>> ParameterStore::shapes() const {
  std::vector<std::pair<std::string, Shape>> out;
  for (const auto& state : parameters_) out.emplace_back(state->path, state->shape);
  return out;
}

}  // namespace tessera::nn
