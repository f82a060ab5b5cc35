#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::text {

struct ScoredPiece {
  std::string piece;
  double score = 0;  // log probability
};

// A unigram language model over pieces: a text is cut where the sum of scores is highest (Kudo 2018).
// Characters that no piece covers become the unknown id, neighbours of them one.
class Unigram {
 public:
  // Throws kDataLoss, beginning with `what`, for an empty vocabulary, a piece given twice or an unknown id
  // outside it.
  Unigram(std::vector<ScoredPiece> pieces, std::int32_t unknown_id, const std::string& what);

  // Appends the ids of `text`. Time linear in its length times the longest piece.
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const;
  const std::vector<ScoredPiece>& pieces() const { return pieces_; }
  // The id of a piece, or -1.
  std::int32_t find(std::string_view piece) const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  std::vector<ScoredPiece> pieces_;
  std::unordered_map<std::string_view, std::int32_t, Hash, std::equal_to<>> ids_;  // views of pieces_
  std::int32_t unknown_id_;
  double unknown_score_ = 0;
  std::size_t longest_ = 0;  // bytes
};

}  // namespace tessera::text
