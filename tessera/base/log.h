#pragma once

#include <fmt/core.h>

#include <functional>
#include <string>
#include <utility>

namespace tessera {

enum class LogLevel { kDebug, kInfo, kWarning };

// Where the library's messages go; nowhere until a callback is set. The callback may be called from any
// thread and must not throw. Set it before work starts.
using LogCallback = std::function<void(LogLevel, const std::string&)>;
void set_log_callback(LogCallback callback);
bool log_enabled();
void log_message(LogLevel level, const std::string& message);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled()) log_message(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tessera
