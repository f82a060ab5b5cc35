#include "tessera/text/tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <ranges>

#include "tessera/base/error.h"
#include "tessera/base/quote.h"
#include "tessera/text/bpe_tokenizer.h"
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

// Those that begin at `from` or after it.
std::vector<Word> words(std::string_view text, std::size_t from) {
  std::vector<Word> out;
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t i = from; i < text.size();) {
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

std::string Tokenizer::lost_text(std::string_view text, std::size_t from, std::size_t room) const {
  auto lost_before = [&](std::size_t end) { return encode_text(text.substr(0, end)).size() > room; };
  std::vector<Word> all = words(text, from);
  std::size_t cut = first_lost(all.size(), [&](std::size_t i) { return lost_before(all[i].end); });
  if (cut == all.size()) return "";  // white space at the end, or the end of a chat's form
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
  const std::vector<std::int32_t> none;
  const auto &before = options.add_special_tokens ? before_ : none,
             &after = options.add_special_tokens ? after_ : none;
  auto special = before.size() + after.size();
  int length = options.max_length.value_or(model_max_length_);
  if (length < static_cast<int>(special)) {
    invalid_argument("a text length of {} tokens does not hold the {} special tokens", length, special);
  }
  std::vector<std::int32_t> ids = encode_text(text);
  Encoding out;
  std::size_t room = static_cast<std::size_t>(length) - special;
  if (options.truncate && ids.size() > room) {
    out.lost_text = lost_text(text.substr(0, text.size() - options.form_after), options.form_before, room);
    ids.resize(room);
  }
  out.ids = before;
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  out.ids.insert(out.ids.end(), after.begin(), after.end());
  out.attention_mask.assign(out.ids.size(), 1);
  if (options.pad && out.ids.size() < static_cast<std::size_t>(length)) {
    std::size_t missing = static_cast<std::size_t>(length) - out.ids.size();
    out.ids.insert(pads_left_ ? out.ids.begin() : out.ids.end(), missing, pad_token_id_);
    out.attention_mask.insert(pads_left_ ? out.attention_mask.begin() : out.attention_mask.end(), missing, 0);
  }
  return out;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder, std::string_view class_name) {
  static const std::map<std::string_view, std::unique_ptr<Tokenizer> (*)(const std::filesystem::path&)> known{
      {"CLIPTokenizer", load_clip_tokenizer},    {"CLIPTokenizerFast", load_clip_tokenizer},
      {"T5Tokenizer", load_t5_tokenizer},        {"T5TokenizerFast", load_t5_tokenizer},
      {"PixtralProcessor", load_bpe_tokenizer},  {"Qwen2Tokenizer", load_bpe_tokenizer},
      {"Qwen2TokenizerFast", load_bpe_tokenizer}};
  auto it = known.find(class_name);
  if (it != known.end()) return it->second(folder);
  fail(ErrorCode::kUnimplemented, "{}: the tokenizer class {} is not supported; supported: {}",
       folder.string(), quote(class_name), fmt::join(std::views::keys(known), ", "));
}

}  // namespace tessera::text
