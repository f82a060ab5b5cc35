#include "tessera/text/unigram.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/quote.h"
#include "tessera/text/unicode.h"

namespace tessera::text {
namespace {

constexpr double kUnknownPenalty = 10.0;  // below the lowest score, as in SentencePiece

}  // namespace

Unigram::Unigram(std::vector<ScoredPiece> pieces, std::int32_t unknown_id, const std::string& what)
    : pieces_(std::move(pieces)), unknown_id_(unknown_id) {
  if (unknown_id < 0 || static_cast<std::size_t>(unknown_id) >= pieces_.size()) {
    fail(ErrorCode::kDataLoss, "{}: the unknown id {} is not among its {} pieces", what, unknown_id,
         pieces_.size());
  }
  double lowest = pieces_.front().score;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const ScoredPiece& p = pieces_[i];
    if (!ids_.emplace(p.piece, static_cast<std::int32_t>(i)).second) {
      fail(ErrorCode::kDataLoss, "{}: the piece {} is there twice", what, quote(p.piece));
    }
    lowest = std::min(lowest, p.score);
    longest_ = std::max(longest_, p.piece.size());
  }
  unknown_score_ = lowest - kUnknownPenalty;
}

std::int32_t Unigram::find(std::string_view piece) const {
  auto it = ids_.find(piece);
  return it == ids_.end() ? -1 : it->second;
}

void Unigram::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  struct Best {
    double score = 0;
    std::size_t from = 0;
    std::int32_t id = -1;  // -1: not reached yet
  };
  std::vector<Best> best(text.size() + 1);
  auto reach = [&](std::size_t from, std::size_t to, std::int32_t id, double score) {
    double total = best[from].score + score;
    if (best[to].id < 0 || total > best[to].score) best[to] = {total, from, id};
  };
  for (std::size_t at = 0; at < text.size();) {
    std::size_t character = utf8_length(text[at]);
    bool whole_character = false;
    std::size_t limit = std::min(text.size(), at + longest_);
    for (std::size_t end = at + character; end <= limit;
         end += end < text.size() ? utf8_length(text[end]) : 1) {
      std::int32_t id = find(text.substr(at, end - at));
      if (id < 0) continue;
      reach(at, end, id, pieces_[static_cast<std::size_t>(id)].score);
      whole_character = whole_character || end == at + character;
    }
    if (!whole_character) reach(at, at + character, unknown_id_, unknown_score_);
    at += character;
  }
  std::vector<std::int32_t> backwards;
  for (std::size_t at = text.size(); at > 0; at = best[at].from) {
    bool repeats_unknown =
        best[at].id == unknown_id_ && !backwards.empty() && backwards.back() == unknown_id_;
    if (!repeats_unknown) backwards.push_back(best[at].id);
  }
  ids.insert(ids.end(), backwards.rbegin(), backwards.rend());
}

}  // namespace tessera::text
