#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text {

bool is_utf8(std::string_view text);
// Throws kInvalidArgument, naming `what` and the byte's position, for bytes that are not UTF-8.
void check_utf8(std::string_view text, std::string_view what);

// Bytes of the character that begins with `lead` (valid UTF-8).
inline std::size_t utf8_length(char lead) {
  auto b = static_cast<unsigned char>(lead);
  return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}

std::string encode_utf8(char32_t c);
// The characters of valid UTF-8.
std::vector<char32_t> decode_utf8(std::string_view text);
// Unicode normalisation form C, in time n log n whatever the text.
std::string nfc(std::string_view text);
// Each character in lower case by itself (without regard to its neighbours).
std::string lower_case(std::string_view text);
// The property White_Space.
bool is_white_space(char32_t c);
// Extended grapheme clusters, as views of the text.
std::vector<std::string_view> graphemes(std::string_view text);

}  // namespace tessera::text
