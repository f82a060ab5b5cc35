#include "tessera/pipelines/trace.h"

#include <utility>

#include "tessera/base/half.h"
#include "tessera/checkpoint/safetensors.h"

namespace tessera::pipelines {
namespace {

std::vector<std::byte> copy(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

void Trace::add(std::string name, const Tensor& tensor) {
  if (dtype_is_float(tensor.dtype())) {
    add_f32(std::move(name), tensor.shape(), tensor.to_f32());
  } else {
    entries_[std::move(name)] = {tensor.dtype(), tensor.shape(), tensor.to_bytes()};
  }
}

void Trace::add_f32(std::string name, const Shape& shape, std::span<const float> values) {
  entries_[std::move(name)] = {DType::kF32, shape, copy(std::as_bytes(values))};
}

void Trace::add_i32(std::string name, const Shape& shape, std::span<const std::int32_t> values) {
  entries_[std::move(name)] = {DType::kI32, shape, copy(std::as_bytes(values))};
}

void Trace::write(const std::filesystem::path& path) const {
  std::vector<checkpoint::TensorView> views;
  for (const auto& [name, entry] : entries_)
    views.push_back({name, entry.dtype, entry.shape, entry.bytes, nullptr});
  checkpoint::write_safetensors(path, views);
}

}  // namespace tessera::pipelines
