#include "tessera/base/quote.h"

#include <fmt/core.h>

#include <algorithm>

namespace tessera {
namespace {

// Length of the well-formed UTF-8 sequence (of a character that may be shown) at the start of text, else 0.
std::size_t shown_sequence(std::string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char first = byte(0);
  if (first >= 0x20 && first < 0x7f) return 1;
  std::size_t length = first >= 0xf0 && first <= 0xf4 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (length == 0 || first > 0xf4 || text.size() < length) return 0;
  std::uint32_t code = first & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  bool surrogate = code >= 0xd800 && code < 0xe000;
  bool control = code < 0xa0 || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return code < kLeast[length] || code > 0x10ffff || surrogate || control ? 0 : length;
}

}  // namespace

std::string quote(std::string_view text, std::size_t max_bytes) {
  std::string out = "'";
  std::size_t i = 0;
  while (i < text.size() && i < max_bytes) {
    std::size_t length = shown_sequence(text.substr(i));
    if (length > 0) {
      out += text.substr(i, length);
    } else if (text[i] == '\n') {
      out += "\\n";
    } else if (text[i] == '\t') {
      out += "\\t";
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i]));
    }
    i += std::max<std::size_t>(length, 1);
  }
  return out + (i < text.size() ? "...'" : "'");
}

}  // namespace tessera
