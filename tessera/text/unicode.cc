#include "tessera/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::text {
namespace {

const auto* bytes(std::string_view text) { return reinterpret_cast<const utf8proc_uint8_t*>(text.data()); }

// Calls f(code point, begin, length) for each character.
template <typename F>
void for_each_character(std::string_view text, F f) {
  for (std::size_t i = 0; i < text.size();) {
    utf8proc_int32_t c = 0;
    utf8proc_ssize_t n =
        utf8proc_iterate(bytes(text) + i, static_cast<utf8proc_ssize_t>(text.size() - i), &c);
    check_internal(n > 0, "text that was checked is not UTF-8");
    f(static_cast<char32_t>(c), i, static_cast<std::size_t>(n));
    i += static_cast<std::size_t>(n);
  }
}

// Bytes of well-formed UTF-8 at the start of the text.
std::size_t well_formed_bytes(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    utf8proc_int32_t c = 0;
    utf8proc_ssize_t n =
        utf8proc_iterate(bytes(text) + i, static_cast<utf8proc_ssize_t>(text.size() - i), &c);
    if (n <= 0) break;
    i += static_cast<std::size_t>(n);
  }
  return i;
}

}  // namespace

bool is_utf8(std::string_view text) { return well_formed_bytes(text) == text.size(); }

void check_utf8(std::string_view text, std::string_view what) {
  std::size_t good = well_formed_bytes(text);
  if (good == text.size()) return;
  invalid_argument("{} is not UTF-8: byte {} (0x{:02x}) does not belong there", what, good,
                   static_cast<unsigned>(static_cast<unsigned char>(text[good])));
}

std::string encode_utf8(char32_t c) {
  utf8proc_uint8_t buffer[4];
  utf8proc_ssize_t n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), buffer);
  return {reinterpret_cast<const char*>(buffer), static_cast<std::size_t>(n)};
}

std::vector<char32_t> decode_utf8(std::string_view text) {
  std::vector<char32_t> out;
  for_each_character(text, [&](char32_t c, std::size_t, std::size_t) { out.push_back(c); });
  return out;
}

std::string nfc(std::string_view text) {
  // utf8proc_map would put marks into order by exchanging neighbours, in quadratic time: a stack of 100 kB
  // takes seconds. So it is asked for one character at a time, and the marks are ordered here.
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size());
  for_each_character(text, [&](char32_t c, std::size_t, std::size_t) {
    constexpr utf8proc_ssize_t kMost = 32;  // the longest decomposition of a character has 4
    utf8proc_int32_t parts[kMost];
    utf8proc_ssize_t n =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, kMost, UTF8PROC_DECOMPOSE, nullptr);
    check_internal(n >= 0 && n <= kMost, "a character cannot be decomposed");
    characters.insert(characters.end(), parts, parts + n);
  });
  auto combining_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  auto is_starter = [&](utf8proc_int32_t c) { return combining_class(c) == 0; };
  for (auto begin = characters.begin(); begin != characters.end();) {
    begin = std::find_if_not(begin, characters.end(), is_starter);
    auto end = std::find_if(begin, characters.end(), is_starter);
    std::stable_sort(begin, end, [&](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    begin = end;
  }
  utf8proc_ssize_t n =
      utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (n < 0) invalid_argument("the text cannot be normalised: {}", utf8proc_errmsg(n));
  characters.resize(static_cast<std::size_t>(n));
  std::string out;
  out.reserve(text.size());
  for (utf8proc_int32_t c : characters) out += encode_utf8(static_cast<char32_t>(c));
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t c, std::size_t, std::size_t) {
    // The one character whose lower case has two: dotted capital I becomes i and a combining dot.
    if (c == 0x130) {
      out += "i\u0307";
    } else {
      out += encode_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  });
  return out;
}

bool is_white_space(char32_t c) {
  return (c >= 0x9 && c <= 0xd) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

std::vector<std::string_view> graphemes(std::string_view text) {
  std::vector<std::string_view> out;
  utf8proc_int32_t state = 0;
  char32_t previous = 0;
  std::size_t begin = 0;
  for_each_character(text, [&](char32_t c, std::size_t at, std::size_t) {
    if (at > 0 && utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous),
                                                   static_cast<utf8proc_int32_t>(c), &state)) {
      out.push_back(text.substr(begin, at - begin));
      begin = at;
    }
    previous = c;
  });
  if (begin < text.size()) out.push_back(text.substr(begin));
  return out;
}

}  // namespace tessera::text
