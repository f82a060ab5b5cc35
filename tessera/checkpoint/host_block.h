#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "tessera/base/dtype.h"
#include "tessera/checkpoint/safetensors.h"

namespace tessera::checkpoint {

// An owned block of host memory, aligned to 64 bytes as XLA wants host buffers to be. Move-only. Not
// initialised.
class HostBlock {
 public:
  static constexpr std::size_t kAlignment = 64;

  HostBlock() = default;
  // Throws kOutOfMemory, naming the size.
  explicit HostBlock(std::size_t bytes);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::span<std::byte> bytes() { return {data_.get(), size_}; }
  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }
  // The block as elements of T (float for f32, std::uint16_t for bf16 and f16, ...).
  template <typename T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data_.get()), size_ / sizeof(T)};
  }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_.get()), size_ / sizeof(T)};
  }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::size_t size_ = 0;
};

// The whole tensor, row-major, with its elements converted to dtype (round to nearest, ties to even; see
// convert_elements). Throws kUnimplemented, naming the tensor, for a pair of dtypes without a conversion.
HostBlock read_tensor(const TensorView& tensor, DType dtype);

// [begin, end) of an axis.
struct Stretch {
  std::int64_t begin = 0, end = 0;
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

// Parts of a tensor: of the axis those stretches, in order, of the others everything; converted as by
// read_tensor. No other byte of the tensor is touched. Throws kInvalidArgument for stretches outside the
// axis.
HostBlock read_stretches(const TensorView& tensor, int axis, std::span<const Stretch> stretches, DType dtype);
// The bytes of those parts where they are one run of the tensor's; nullopt where they are not.
std::optional<std::span<const std::byte>> contiguous_stretch(const TensorView& tensor, int axis,
                                                             std::span<const Stretch> stretches);

}  // namespace tessera::checkpoint
