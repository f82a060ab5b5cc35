#include "tessera/cli/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <initializer_list>
#include <string_view>

namespace tessera::cli {
namespace {

// timeout(1) signals the program and then its process group: one request, not two.
constexpr std::int64_t kOneRequestMilliseconds = 500;

std::atomic<int> caught = 0;
std::atomic<std::int64_t> asked_at = 0;  // milliseconds, of a clock that is never 0
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

extern "C" void on_signal(int signal) {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  std::int64_t now = static_cast<std::int64_t>(time.tv_sec) * 1000 + time.tv_nsec / 1000000 + 1;
  std::int64_t first = 0;
  if (asked_at.compare_exchange_strong(first, now)) {
    caught = signal;
  } else if (now - first > kOneRequestMilliseconds) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // takes effect when this handler returns
  }
}

// Writes to a file descriptor alone: nothing else is safe in a handler.
extern "C" void end_on_signal(int signal) {
  constexpr std::string_view kClear = "\r\x1b[K", kLine = "error: interrupted; nothing was written\n";
  auto say = [](std::string_view text) {
    if (write(STDERR_FILENO, text.data(), text.size()) < 0) _exit(1);
  };
  if (isatty(STDERR_FILENO) == 1) say(kClear);
  say(kLine);
  _exit(128 + signal);
}

void handle_interrupts(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);  // nohup keeps its way
  }
}

}  // namespace

void catch_interrupts() { handle_interrupts(on_signal); }
void end_on_interrupts() { handle_interrupts(end_on_signal); }

bool interrupt_asked() { return caught != 0; }

void check_interrupt() {
  if (interrupt_asked()) throw Interrupted();
}

int interrupt_status() { return 128 + caught; }

}  // namespace tessera::cli
