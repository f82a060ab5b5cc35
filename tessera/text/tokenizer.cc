#include "tessera/text/tokenizer.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/quote.h"
#include "tessera/text/clip_tokenizer.h"
#include "tessera/text/t5_tokenizer.h"
#include "tessera/text/unicode.h"

namespace tessera::text {
namespace {

// A cut word that is longer than this many characters (text that is written without spaces) is named from the
// cut on; a shorter one as a whole.
constexpr std::size_t kLongWord = 32;

// Where the characters of text[begin, end) end, in bytes from the start of the text.
std::vector<std::size_t> character_ends(std::string_view text, std::size_t begin, std::size_t end) {
  std::vector<std::size_t> out;
  for (std::size_t i = begin; i < end;) out.push_back(i += utf8_length(text[i]));
  return out;
}

struct Word {
  std::size_t begin, end;  // in bytes
};

std::vector<Word> words(std::string_view text) {
  std::vector<Word> out;
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t n = utf8_length(text[i]);
    bool space = is_white_space(decode_utf8(text.substr(i, n))[0]);
    if (space && inside) out.push_back({begin, i});
    if (!space && !inside) begin = i;
    inside = !space;
    i += n;
  }
  if (inside) out.push_back({begin, text.size()});
  return out;
}

// The first index below `count` for which `lost` holds, which it does from there on; `count` if for none.
// Looks near the start first: a text may be far longer than what a model takes.
template <typename F>
std::size_t first_lost(std::size_t count, F lost) {
  std::size_t low = 0, step = 1;
  while (low < count && !lost(std::min(low + step, count) - 1)) {
    low = std::min(low + step, count);
    step *= 2;
  }
  std::size_t high = std::min(low + step, count);  // lost(high - 1), or nothing is lost
  while (low + 1 < high) {
    std::size_t middle = low + (high - low) / 2;
    (lost(middle - 1) ? high : low) = middle;
  }
  return low;
}

}  // namespace

std::string Tokenizer::lost_text(std::string_view text, std::size_t room) const {
  auto lost_before = [&](std::size_t end) { return encode_text(text.substr(0, end)).size() > room; };
  std::vector<Word> all = words(text);
  std::size_t cut = first_lost(all.size(), [&](std::size_t i) { return lost_before(all[i].end); });
  if (all.empty()) return std::string(text);
  cut = std::min(cut, all.size() - 1);
  std::size_t begin = all[cut].begin, end = all.back().end;
  std::vector<std::size_t> ends = character_ends(text, begin, all[cut].end);
  if (ends.size() > kLongWord) {
    std::size_t kept = first_lost(ends.size(), [&](std::size_t i) { return lost_before(ends[i]); });
    if (kept > 0 && kept < ends.size()) begin = ends[kept - 1];
  }
  return std::string(text.substr(begin, end - begin));
}

Encoding Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  check_utf8(text, "the text");
  auto special = before_.size() + after_.size();
  int length = options.max_length.value_or(model_max_length_);
  if (length < static_cast<int>(special)) {
    invalid_argument("a text length of {} tokens does not hold the {} special tokens", length, special);
  }
  std::vector<std::int32_t> ids = encode_text(text);
  Encoding out;
  std::size_t room = static_cast<std::size_t>(length) - special;
  if (options.truncate && ids.size() > room) {
    out.lost_text = lost_text(text, room);
    ids.resize(room);
  }
  out.ids = before_;
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  out.ids.insert(out.ids.end(), after_.begin(), after_.end());
  out.attention_mask.assign(out.ids.size(), 1);
  if (options.pad && out.ids.size() < static_cast<std::size_t>(length)) {
    out.ids.resize(static_cast<std::size_t>(length), pad_token_id_);
    out.attention_mask.resize(static_cast<std::size_t>(length), 0);
  }
  return out;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder, std::string_view class_name) {
  if (class_name == "CLIPTokenizer" || class_name == "CLIPTokenizerFast") return load_clip_tokenizer(folder);
  if (class_name == "T5Tokenizer" || class_name == "T5TokenizerFast") return load_t5_tokenizer(folder);
  fail(ErrorCode::kUnimplemented,
       "{}: the tokenizer class {} is not supported; supported: CLIPTokenizer, CLIPTokenizerFast, "
       "T5Tokenizer, "
       "T5TokenizerFast",
       folder.string(), quote(class_name));
}

}  // namespace tessera::text
