#pragma once

#include <cstdint>
#include <mutex>
#include <string>

namespace tessera {

// The bytes counted on one device, in launch order: buffers at the size the device gives them, and the
// scratch of the program being launched. Safe from several threads.
class MemoryAccount {
 public:
  // A limit of 0 is no limit.
  MemoryAccount(std::string device, std::int64_t limit) : device_(std::move(device)), limit_(limit) {}

  // Throws kOutOfMemory, with what would help, if `bytes` more would pass the limit.
  void allocate(std::int64_t bytes);
  void release(std::int64_t bytes);
  // Bytes that are needed only while a program runs: they count for the peak and the limit.
  void scratch(std::int64_t bytes);

  std::int64_t in_use() const;
  std::int64_t peak() const;
  // From here on the peak is counted anew.
  void reset_peak();

 private:
  void check(std::int64_t wanted) const;

  mutable std::mutex mutex_;
  std::string device_;
  std::int64_t limit_;
  std::int64_t in_use_ = 0, peak_ = 0;
};

}  // namespace tessera
