#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace tessera {

// What kind of thing went wrong; the message says what was asked, what was found and what to do.
enum class ErrorCode {
  kInvalidArgument,
  kNotFound,
  kOutOfMemory,
  kDataLoss,
  kUnimplemented,
  kUnavailable,
  kInternal,
};

// "invalid argument", "not found", ...
std::string_view error_code_name(ErrorCode code);

// The one exception type that the library throws.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// Throws an Error with a formatted message.
template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void invalid_argument(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
}

// Throws kInternal when a promise inside the library is broken.
inline void check_internal(bool ok, std::string_view what) {
  if (!ok) fail(ErrorCode::kInternal, "internal error: {}", what);
}

}  // namespace tessera
