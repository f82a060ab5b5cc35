#pragma once

#include <string>
#include <string_view>

namespace tessera {

// 'text' for a one-line message: control characters and bytes that are not UTF-8 as \n, \x1b, ..., cut with
// "..." after max_bytes.
std::string quote(std::string_view text, std::size_t max_bytes = 120);

}  // namespace tessera
