#include "tessera/runtime/program_cache.h"

namespace tessera {

void CompiledProgram::measure(std::span<const pjrt::BufferPtr> results) {
  if (measured_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(mutex_);
  if (measured_.load(std::memory_order_relaxed)) return;
  for (const pjrt::BufferPtr& result : results) measured_bytes_.push_back(result->size_on_device());
  measured_.store(true, std::memory_order_release);
}

ProgramCache::Entry& ProgramCache::entry(const graph::Fingerprint& fingerprint, const graph::Mesh& mesh) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<Entry>& entry = entries_[{fingerprint, &mesh}];
  if (!entry) entry = std::make_unique<Entry>();
  return *entry;
}

std::size_t ProgramCache::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace tessera
