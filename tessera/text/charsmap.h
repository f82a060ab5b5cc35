#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text {

// SentencePiece's precompiled character map: a double-array trie (the layout of Darts-clone) from character
// sequences to their replacements, as stored in spiece.model and, in base64, in tokenizer.json.
class CharsMap {
 public:
  CharsMap() = default;  // replaces nothing
  // Throws kDataLoss, beginning with `what`, for a map that is cut short.
  CharsMap(std::string_view blob, const std::string& what);

  // Replaces each grapheme that is short and in the map, else each of its characters that is.
  std::string normalise(std::string_view text) const;

 private:
  // The replacement of the shortest entry that `text` begins with; false if there is none.
  bool replace(std::string_view text, std::string& out) const;

  std::vector<std::uint32_t> trie_;
  std::string replacements_;  // each ended by a zero byte
};

}  // namespace tessera::text
