#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera::text {

using Vocabulary = std::unordered_map<std::string, std::int32_t>;

// Byte-pair encoding over bytes written as printable characters (the alphabet of GPT-2), with a suffix at the
// end of each word where the vocabulary has one (CLIP's has; those of language models have none).
class ByteLevelBpe {
 public:
  // What a byte without a symbol of its own becomes: nothing.
  static constexpr std::int32_t kNoUnknown = -1;

  // Merges in order of rank. `whole_words` says that a word in the vocabulary is one token, whatever the
  // merges make of it ("ignore_merges"). Throws kDataLoss, beginning with `what`, for a merge whose parts or
  // result are not in the vocabulary.
  ByteLevelBpe(Vocabulary vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
               std::string end_of_word_suffix, std::int32_t unknown_id, const std::string& what,
               bool whole_words = false);

  // Appends the ids of a word (bytes as they are). Time n log n in its length.
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const;
  // The vocabulary's text for an id; empty if there is none.
  const std::string& piece(std::int32_t id) const;
  // A piece back to bytes, the suffix as a space.
  std::string decode_piece(std::string_view piece) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Merge {
    std::int32_t rank, result;
  };
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }

  Vocabulary vocabulary_;
  std::unordered_map<std::uint64_t, Merge> merges_;
  std::unordered_map<std::int32_t, std::string> pieces_;
  std::string suffix_;
  std::int32_t unknown_id_;
  bool whole_words_;
};

// A byte as a character of that alphabet, in UTF-8.
const std::string& byte_character(unsigned char byte);

}  // namespace tessera::text
