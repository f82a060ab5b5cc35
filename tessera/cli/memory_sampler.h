#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace tessera::cli {

// The largest anonymous resident memory (RssAnon) that this process was seen to have, looked at every 10 ms
// by a thread of its own.
class MemorySampler {
 public:
  MemorySampler();
  ~MemorySampler();
  MemorySampler(const MemorySampler&) = delete;
  MemorySampler& operator=(const MemorySampler&) = delete;

  // Looks once more. Bytes; 0 where the system does not say.
  std::int64_t peak_bytes();

 private:
  void sample();

  int status_file_;
  std::atomic<std::int64_t> peak_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace tessera::cli
