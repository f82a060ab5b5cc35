#include "tessera/checkpoint/host_block.h"

#include <new>

#include "tessera/base/error.h"
#include "tessera/base/half.h"
#include "tessera/base/quote.h"

namespace tessera::checkpoint {

HostBlock::HostBlock(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* block = ::operator new (bytes, std::align_val_t{kAlignment}, std::nothrow);
  if (block == nullptr) fail(ErrorCode::kOutOfMemory, "no host memory for {} bytes", bytes);
  data_.reset(static_cast<std::byte*>(block));
}

void HostBlock::Free::operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{kAlignment}); }

namespace {

// The tensor as [outer, axis, inner].
struct AroundAxis {
  AroundAxis(const TensorView& tensor, int axis, std::span<const Stretch> stretches)
      : extent(tensor.shape[axis]) {
    for (int i = 0; i < axis; ++i) outer *= tensor.shape[i];
    for (int i = axis + 1; i < tensor.shape.rank(); ++i) inner *= tensor.shape[i];
    for (const Stretch& s : stretches) {
      if (s.begin < 0 || s.begin > s.end || s.end > extent) {
        invalid_argument("tensor {} {}: there is no part {} to {} of axis {}", quote(tensor.name),
                         to_string(tensor.shape), s.begin, s.end, axis);
      }
      width += s.end - s.begin;
    }
  }
  std::int64_t extent, outer = 1, inner = 1;
  std::int64_t width = 0;  // of all stretches
};

// Converts `count` elements of the tensor from number `first` on.
void convert_run(const TensorView& tensor, std::int64_t first, std::int64_t count, DType dtype,
                 std::byte* out) {
  if (count == 0) return;
  convert_elements(tensor.dtype, tensor.data.data() + dtype_bytes(tensor.dtype, first), dtype, out, count);
}

template <typename F>
auto about(const TensorView& tensor, F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    fail(e.code(), "tensor {} {}: {}", quote(tensor.name), to_string(tensor.shape), e.what());
  }
}

}  // namespace

HostBlock read_tensor(const TensorView& tensor, DType dtype) {
  std::int64_t elements = tensor.shape.elements();
  return about(tensor, [&] {
    HostBlock block(static_cast<std::size_t>(dtype_bytes(dtype, elements)));
    convert_run(tensor, 0, elements, dtype, block.data());
    return block;
  });
}

HostBlock read_stretches(const TensorView& tensor, int axis, std::span<const Stretch> stretches,
                         DType dtype) {
  AroundAxis around(tensor, axis, stretches);
  return about(tensor, [&] {
    HostBlock block(static_cast<std::size_t>(dtype_bytes(dtype, around.outer * around.width * around.inner)));
    std::byte* out = block.data();
    for (std::int64_t row = 0; row < around.outer; ++row) {
      for (const Stretch& s : stretches) {
        std::int64_t count = (s.end - s.begin) * around.inner;
        convert_run(tensor, (row * around.extent + s.begin) * around.inner, count, dtype, out);
        out += dtype_bytes(dtype, count);
      }
    }
    return block;
  });
}

std::optional<std::span<const std::byte>> contiguous_stretch(const TensorView& tensor, int axis,
                                                             std::span<const Stretch> stretches) {
  AroundAxis around(tensor, axis, stretches);
  if (around.outer != 1 || stretches.size() != 1) return std::nullopt;
  auto bytes = [&](std::int64_t n) {
    return static_cast<std::size_t>(dtype_bytes(tensor.dtype, n * around.inner));
  };
  return tensor.data.subspan(bytes(stretches[0].begin), bytes(around.width));
}

}  // namespace tessera::checkpoint
