#include "tessera/text/charsmap.h"

#include <cstring>

#include "tessera/base/error.h"
#include "tessera/text/unicode.h"

namespace tessera::text {
namespace {

// The fields of a unit of the double array.
bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7fffffffu; }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000ffu; }
std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

constexpr std::size_t kShortGrapheme = 6;  // bytes; longer ones are taken character by character

}  // namespace

CharsMap::CharsMap(std::string_view blob, const std::string& what) {
  if (blob.empty()) return;
  std::uint32_t bytes = 0;
  if (blob.size() >= sizeof bytes) std::memcpy(&bytes, blob.data(), sizeof bytes);
  if (blob.size() < sizeof bytes || bytes % 4 != 0 || bytes > blob.size() - sizeof bytes || bytes == 0) {
    fail(ErrorCode::kDataLoss, "{}: its character map is damaged", what);
  }
  trie_.resize(bytes / 4);
  std::memcpy(trie_.data(), blob.data() + sizeof bytes, bytes);
  replacements_ = blob.substr(sizeof bytes + bytes);
}

bool CharsMap::replace(std::string_view text, std::string& out) const {
  std::size_t node = offset_of(trie_[0]);
  for (char c : text) {
    if (c == '\0') return false;
    node ^= static_cast<unsigned char>(c);
    if (node >= trie_.size()) return false;
    std::uint32_t unit = trie_[node];
    if (label_of(unit) != static_cast<unsigned char>(c)) return false;
    node ^= offset_of(unit);
    if (node >= trie_.size()) return false;
    if (!has_leaf(unit)) continue;
    std::size_t begin = value_of(trie_[node]);
    if (begin > replacements_.size()) return false;
    std::size_t end = replacements_.find('\0', begin);
    out.append(replacements_, begin, end == std::string::npos ? end : end - begin);
    return true;
  }
  return false;
}

std::string CharsMap::normalise(std::string_view text) const {
  if (trie_.empty()) return std::string(text);
  std::string out;
  for (std::string_view grapheme : graphemes(text)) {
    if (grapheme.size() < kShortGrapheme && replace(grapheme, out)) continue;
    for (std::size_t i = 0; i < grapheme.size();) {
      std::string_view character = grapheme.substr(i, utf8_length(grapheme[i]));
      if (!replace(character, out)) out += character;
      i += character.size();
    }
  }
  return out;
}

}  // namespace tessera::text
