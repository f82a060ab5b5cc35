#include "tessera/text/byte_level_bpe.h"

#include <array>
#include <queue>

#include "tessera/base/error.h"
#include "tessera/base/quote.h"
#include "tessera/text/unicode.h"

namespace tessera::text {
namespace {

// Printable Latin-1 bytes stand for themselves; the others follow from U+0100 on.
std::array<std::string, 256> make_alphabet() {
  std::array<std::string, 256> out;
  char32_t next = 256;
  for (unsigned b = 0; b < 256; ++b) {
    bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    out[b] = encode_utf8(printable ? static_cast<char32_t>(b) : next++);
  }
  return out;
}

const std::array<std::string, 256>& alphabet() {
  static const std::array<std::string, 256> table = make_alphabet();
  return table;
}

const std::unordered_map<std::string, char>& reverse_alphabet() {
  static const std::unordered_map<std::string, char> table = [] {
    std::unordered_map<std::string, char> out;
    for (unsigned b = 0; b < 256; ++b) out[alphabet()[b]] = static_cast<char>(b);
    return out;
  }();
  return table;
}

// A symbol of a word that is being merged, linked to its neighbours.
struct Symbol {
  std::int32_t id;
  int previous, next;
};

struct Candidate {
  std::int32_t rank;
  int left;
  std::int32_t left_id, right_id;  // to see whether it is still there
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : left > other.left;  // lowest rank, then leftmost, on top
  }
};

}  // namespace

const std::string& byte_character(unsigned char byte) { return alphabet()[byte]; }

ByteLevelBpe::ByteLevelBpe(Vocabulary vocabulary,
                           const std::vector<std::pair<std::string, std::string>>& merges,
                           std::string end_of_word_suffix, std::int32_t unknown_id, const std::string& what,
                           bool whole_words)
    : vocabulary_(std::move(vocabulary)),
      suffix_(std::move(end_of_word_suffix)),
      unknown_id_(unknown_id),
      whole_words_(whole_words) {
  for (const auto& [piece, id] : vocabulary_) {
    if (!pieces_.emplace(id, piece).second) {
      fail(ErrorCode::kDataLoss, "{}: the id {} stands for both {} and {}", what, id, quote(pieces_[id]),
           quote(piece));
    }
  }
  auto find = [&](const std::string& piece) {
    auto it = vocabulary_.find(piece);
    if (it == vocabulary_.end()) {
      fail(ErrorCode::kDataLoss, "{}: a merge names {}, which is not in the vocabulary", what, quote(piece));
    }
    return it->second;
  };
  std::int32_t rank = 0;
  for (const auto& [left, right] : merges) {
    merges_.emplace(key(find(left), find(right)), Merge{rank++, find(left + right)});
  }
}

void ByteLevelBpe::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (whole_words_) {
    std::string whole;
    for (char c : word) whole += byte_character(static_cast<unsigned char>(c));
    if (auto it = vocabulary_.find(whole + suffix_); it != vocabulary_.end())
      return ids.push_back(it->second);
  }
  std::vector<Symbol> symbols;
  for (std::size_t i = 0; i < word.size(); ++i) {
    std::string symbol = byte_character(static_cast<unsigned char>(word[i]));
    if (i + 1 == word.size()) symbol += suffix_;
    auto it = vocabulary_.find(symbol);
    std::int32_t id = it == vocabulary_.end() ? unknown_id_ : it->second;
    if (id == kNoUnknown) continue;
    int index = static_cast<int>(symbols.size());
    symbols.push_back({id, index - 1, index + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;

  std::priority_queue<Candidate> queue;
  auto propose = [&](int left) {
    if (left < 0 || symbols[static_cast<std::size_t>(left)].next < 0) return;
    const Symbol& a = symbols[static_cast<std::size_t>(left)];
    const Symbol& b = symbols[static_cast<std::size_t>(a.next)];
    auto it = merges_.find(key(a.id, b.id));
    if (it != merges_.end()) queue.push({it->second.rank, left, a.id, b.id});
  };
  for (int i = 0; i < static_cast<int>(symbols.size()); ++i) propose(i);
  constexpr std::int32_t kGone = -1;
  while (!queue.empty()) {
    Candidate c = queue.top();
    queue.pop();
    Symbol& a = symbols[static_cast<std::size_t>(c.left)];
    if (a.id != c.left_id || a.next < 0) continue;
    Symbol& b = symbols[static_cast<std::size_t>(a.next)];
    if (b.id != c.right_id) continue;
    a.id = merges_.at(key(a.id, b.id)).result;
    b.id = kGone;
    a.next = b.next;
    if (a.next >= 0) symbols[static_cast<std::size_t>(a.next)].previous = c.left;
    propose(a.previous);
    propose(c.left);
  }
  for (int i = 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next) {
    ids.push_back(symbols[static_cast<std::size_t>(i)].id);
  }
}

const std::string& ByteLevelBpe::piece(std::int32_t id) const {
  static const std::string none;
  auto it = pieces_.find(id);
  return it == pieces_.end() ? none : it->second;
}

std::string ByteLevelBpe::decode_piece(std::string_view piece) const {
  bool ends_word = !suffix_.empty() && piece.ends_with(suffix_);
  if (ends_word) piece.remove_suffix(suffix_.size());
  std::string out;
  for (std::size_t i = 0; i < piece.size();) {
    std::string character(piece.substr(i, utf8_length(piece[i])));
    auto it = reverse_alphabet().find(character);
    if (it != reverse_alphabet().end()) {
      out += it->second;
    } else {
      out += character;
    }
    i += character.size();
  }
  return ends_word ? out + " " : out;
}

}  // namespace tessera::text
