#include "tessera/runtime/run_ahead.h"

#include "tessera/base/error.h"

namespace tessera {

void RunAhead::wait_oldest(std::unique_lock<std::mutex>& lock) {
  Launch oldest = std::move(launches_.front());
  launches_.pop_front();
  bytes_ -= oldest.bytes;
  lock.unlock();
  try {
    oldest.done.await();
  } catch (const Error&) {
  }
  lock.lock();
}

void RunAhead::reserve(std::int64_t bytes) {
  std::unique_lock lock(mutex_);
  while (!launches_.empty() && (launches_.size() >= kMaxLaunches || bytes_ + bytes > kMaxBytes))
    wait_oldest(lock);
}

void RunAhead::launched(pjrt::Event done, std::int64_t bytes) {
  std::lock_guard lock(mutex_);
  launches_.push_back({std::move(done), bytes});
  bytes_ += bytes;
}

void RunAhead::drain() {
  std::unique_lock lock(mutex_);
  while (!launches_.empty()) wait_oldest(lock);
}

}  // namespace tessera
