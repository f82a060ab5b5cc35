#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace tessera::cli {

// The process's anonymous resident memory (RssAnon of /proc/self/status) in bytes; 0 where it cannot be read.
std::int64_t rss_anon_bytes();

// Watches it on a thread, every few milliseconds, and keeps the peak.
class MemoryWatch {
 public:
  MemoryWatch();
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;
  std::int64_t peak() const { return peak_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> peak_{0};
  std::thread thread_;
};

}  // namespace tessera::cli
