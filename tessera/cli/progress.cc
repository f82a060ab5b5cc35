#include "tessera/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace tessera::cli {

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1) {}
Progress::~Progress() { clear(); }

void Progress::show(const std::string& text) {
  if (!terminal_) return;
  std::fputs(fmt::format("\r\x1b[K{}", text).c_str(), stderr);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

void Progress::stage(std::string_view name) {
  loop_start_ = std::chrono::steady_clock::now();
  show(fmt::format("{} ...", name));
}

void Progress::step(int done, int count) {
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - loop_start_).count();
  double each = seconds / done;
  constexpr int kWidth = 24;
  std::string bar(static_cast<std::size_t>(kWidth * done / count), '#');
  show(fmt::format("step {}/{} [{:<{}}] {:.2f} s/step, {:.0f} s left", done, count, bar, kWidth, each,
                   each * (count - done)));
}

}  // namespace tessera::cli
