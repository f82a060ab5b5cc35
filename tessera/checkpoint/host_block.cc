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

HostBlock read_tensor(const TensorView& tensor, DType dtype) {
  std::int64_t elements = tensor.shape.elements();
  try {
    HostBlock block(static_cast<std::size_t>(dtype_bytes(dtype, elements)));
    if (elements > 0) convert_elements(tensor.dtype, tensor.data.data(), dtype, block.data(), elements);
    return block;
  } catch (const Error& e) {
    fail(e.code(), "tensor {} {}: {}", quote(tensor.name), to_string(tensor.shape), e.what());
  }
}

}  // namespace tessera::checkpoint
