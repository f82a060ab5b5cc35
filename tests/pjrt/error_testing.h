#pragma once

#include <string>

#include "tessera/base/error.h"

namespace tessera::pjrt {

// The Error that f throws, as "code: message"; "none" if it throws nothing.
template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.what();
  }
  return "none";
}

}  // namespace tessera::pjrt
