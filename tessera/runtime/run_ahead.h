#pragma once

#include <cstdint>
#include <deque>
#include <mutex>

#include "tessera/pjrt/pjrt.h"

namespace tessera {

// Bounds how far the host runs ahead of one client's devices: by launches, and by the bytes of results and
// scratch that launched programs may still hold although nobody refers to them any more.
class RunAhead {
 public:
  static constexpr std::size_t kMaxLaunches = 512;
  static constexpr std::int64_t kMaxBytes = std::int64_t{32} << 20;

  // Makes room for a launch of `bytes`, waiting for the oldest ones if need be.
  void reserve(std::int64_t bytes);
  // Notes a launch.
  void launched(pjrt::Event done, std::int64_t bytes);
  // Waits for everything.
  void drain();

 private:
  struct Launch {
    pjrt::Event done;
    std::int64_t bytes;
  };
  // Waits for the oldest launch. An error is not lost: the result's buffer carries it to whoever reads it.
  void wait_oldest(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::deque<Launch> launches_;
  std::int64_t bytes_ = 0;
};

}  // namespace tessera
