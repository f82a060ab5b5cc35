#include "tessera/cli/memory_watch.h"

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>

namespace tessera::cli {

std::int64_t rss_anon_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("RssAnon:")) continue;
    std::istringstream fields(line.substr(8));
    std::int64_t kib = 0;
    fields >> kib;
    return kib * 1024;
  }
  return 0;
}

MemoryWatch::MemoryWatch() {
  thread_ = std::thread([this] {
    constexpr auto kEvery = std::chrono::milliseconds(5);
    while (!stop_) {
      std::int64_t now = rss_anon_bytes();
      if (now > peak_) peak_ = now;
      std::this_thread::sleep_for(kEvery);
    }
  });
}

MemoryWatch::~MemoryWatch() {
  stop_ = true;
  thread_.join();
}

}  // namespace tessera::cli
