#include "tessera/cli/memory_sampler.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string_view>

namespace tessera::cli {
namespace {

// "RssAnon:\t  1234 kB" in /proc/self/status.
std::int64_t rss_anon_bytes(int status_file) {
  char buffer[8192];
  ssize_t n = ::pread(status_file, buffer, sizeof(buffer) - 1, 0);
  if (n <= 0) return 0;
  buffer[n] = '\0';
  constexpr std::string_view kName = "RssAnon:";
  std::size_t found = std::string_view(buffer, static_cast<std::size_t>(n)).find(kName);
  if (found == std::string_view::npos) return 0;
  return std::strtoll(buffer + found + kName.size(), nullptr, 10) * 1024;
}

}  // namespace

MemorySampler::MemorySampler() : status_file_(::open("/proc/self/status", O_RDONLY | O_CLOEXEC)) {
  // Signals are for the main thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] {
    while (!stop_.load()) {
      sample();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

MemorySampler::~MemorySampler() {
  stop_ = true;
  thread_.join();
  if (status_file_ >= 0) ::close(status_file_);
}

void MemorySampler::sample() {
  std::int64_t now = rss_anon_bytes(status_file_);
  std::int64_t peak = peak_.load();
  while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
  }
}

std::int64_t MemorySampler::peak_bytes() {
  sample();
  return peak_.load();
}

}  // namespace tessera::cli
