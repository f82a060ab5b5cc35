#include "tessera/runtime/program_cache.h"

namespace tessera {

std::shared_ptr<ProgramCache::Entry> ProgramCache::entry(const graph::Fingerprint& fingerprint, int client) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Entry>& entry = entries_[{fingerprint, client}];
  if (!entry) entry = std::make_shared<Entry>();
  return entry;
}

std::size_t ProgramCache::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace tessera
