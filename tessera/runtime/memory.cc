#include "tessera/runtime/memory.h"

#include <algorithm>

#include "tessera/base/env.h"
#include "tessera/base/error.h"

namespace tessera {

void MemoryAccount::check(std::int64_t wanted) const {
  if (limit_ == 0 || in_use_ + wanted <= limit_) return;
  fail(ErrorCode::kOutOfMemory,
       "out of memory on {}: {} are wanted with {} of {} in use; model offload or a smaller picture would "
       "help",
       device_, format_bytes(wanted), format_bytes(in_use_), format_bytes(limit_));
}

void MemoryAccount::allocate(std::int64_t bytes) {
  std::lock_guard lock(mutex_);
  check(bytes);
  in_use_ += bytes;
  peak_ = std::max(peak_, in_use_);
}

void MemoryAccount::release(std::int64_t bytes) {
  std::lock_guard lock(mutex_);
  in_use_ -= bytes;
}

void MemoryAccount::scratch(std::int64_t bytes) {
  std::lock_guard lock(mutex_);
  check(bytes);
  peak_ = std::max(peak_, in_use_ + bytes);
}

std::int64_t MemoryAccount::in_use() const {
  std::lock_guard lock(mutex_);
  return in_use_;
}

std::int64_t MemoryAccount::peak() const {
  std::lock_guard lock(mutex_);
  return peak_;
}

void MemoryAccount::reset_peak() {
  std::lock_guard lock(mutex_);
  peak_ = in_use_;
}

}  // namespace tessera
