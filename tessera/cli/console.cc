#include "tessera/cli/console.h"

#include <fmt/core.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <mutex>

#include "tessera/base/log.h"

namespace tessera::cli::console {
namespace {

struct State {
  std::mutex mutex;
  bool terminal = isatty(STDERR_FILENO) == 1;
  bool progress_shown = false;
  int rank = 0;  // set before threads start
  spdlog::logger logger{"tessera", std::make_shared<spdlog::sinks::stderr_sink_st>()};

  State() {
    logger.set_pattern("%v");
    logger.flush_on(spdlog::level::info);
  }
  void clear() {
    if (progress_shown) std::fputs("\r\x1b[K", stderr);
    progress_shown = false;
  }
};

State& state() {
  static State instance;
  return instance;
}

void say(spdlog::level::level_enum level, const std::string& text) {
  State& s = state();
  if (s.rank > 0 && level != spdlog::level::err) return;
  std::lock_guard lock(s.mutex);
  s.clear();
  s.logger.log(level, one_line(text));
}

}  // namespace

std::string one_line(const std::string& text) {
  std::string out;
  for (char c : text) {
    bool space = c == '\n' || c == '\r' || c == '\t';
    if (!space) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

void connect_library_log() {
  state();
  set_log_callback([](LogLevel level, const std::string& message) {
    if (level == LogLevel::kWarning) warning(message);
  });
}

void speak_as_rank(int rank) {
  state().rank = rank;
  state().terminal &= rank == 0;
}

bool speaks_first() { return state().rank == 0; }

void error(const std::string& message) {
  std::string who = speaks_first() ? "" : fmt::format("rank {}: ", state().rank);
  say(spdlog::level::err, fmt::format("error: {}{}", who, message));
}
void warning(const std::string& message) { say(spdlog::level::warn, "warning: " + message); }
void note(const std::string& message) { say(spdlog::level::info, message); }

void progress(const std::string& text) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (!s.terminal) return;
  s.clear();
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
  s.progress_shown = true;
}

void clear_progress() {
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.clear();
  std::fflush(stderr);
}

}  // namespace tessera::cli::console
