#define PCRE2_CODE_UNIT_WIDTH 8
#include "tessera/text/clip_tokenizer.h"

#include <pcre2.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tessera/base/error.h"
#include "tessera/base/file.h"
#include "tessera/base/json.h"
#include "tessera/base/quote.h"
#include "tessera/text/added_tokens.h"
#include "tessera/text/byte_level_bpe.h"
#include "tessera/text/unicode.h"

namespace tessera::text {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFile = std::size_t{64} << 20;

// The words of a normalised text. White space is spelled out: PCRE2's own notion of it is not Unicode's.
constexpr const char* kWords =
    R"(<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|)"
    R"([^\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\p{L}\p{N}]+)";

// A compiled pattern that finds its matches in a text, one after another.
class Pattern {
 public:
  explicit Pattern(const char* pattern) {
    int error = 0;
    PCRE2_SIZE at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                              PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr));
    check_internal(code_ != nullptr, "a pattern does not compile");
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // slower without, but right
  }

  template <typename F>
  void for_each(std::string_view text, F f) const {
    std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
        pcre2_match_data_create_from_pattern(code_.get(), nullptr), &pcre2_match_data_free);
    for (std::size_t at = 0; at < text.size();) {
      int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                              PCRE2_NO_UTF_CHECK, match.get(), nullptr);
      if (found < 1) return;
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
      if (range[1] <= at) return;  // an empty match, which the pattern cannot give
      f(text.substr(range[0], range[1] - range[0]));
      at = range[1];
    }
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
};

std::string normalise(std::string_view text) {
  std::string out;
  bool in_space = false;
  for (char32_t c : decode_utf8(nfc(text))) {
    bool space = is_white_space(c);
    if (space && !in_space) out += ' ';
    if (!space) out += encode_utf8(c);
    in_space = space;
  }
  return lower_case(out);
}

class ClipTokenizer : public Tokenizer {
 public:
  ClipTokenizer(ByteLevelBpe bpe, const std::vector<AddedToken>& added, std::int32_t start, std::int32_t end,
                std::int32_t pad, int max_length)
      : bpe_(std::move(bpe)), raw_(added, false), normalised_(added, true), words_(kWords) {
    before_ = {start};
    after_ = {end};
    pad_token_id_ = pad;
    model_max_length_ = max_length;
    for (const AddedToken& token : added) added_pieces_[token.id] = token.content;
  }

  std::string piece(std::int32_t id) const override {
    auto it = added_pieces_.find(id);
    return it == added_pieces_.end() ? bpe_.piece(id) : it->second;
  }

  std::string decode(const std::vector<std::int32_t>& ids) const override {
    std::string out;
    for (std::int32_t id : ids) {
      if (id != before_[0] && id != after_[0]) out += bpe_.decode_piece(bpe_.piece(id));
    }
    while (out.ends_with(' ')) out.pop_back();
    return out;
  }

 protected:
  std::vector<std::int32_t> encode_text(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    for (const Segment& raw : raw_.split(text)) {
      if (const auto* id = std::get_if<std::int32_t>(&raw)) {
        ids.push_back(*id);
        continue;
      }
      std::string normal = normalise(std::get<std::string_view>(raw));
      for (const Segment& segment : normalised_.split(normal)) {
        if (const auto* id = std::get_if<std::int32_t>(&segment)) {
          ids.push_back(*id);
        } else {
          words_.for_each(std::get<std::string_view>(segment),
                          [&](std::string_view word) { bpe_.encode(word, ids); });
        }
      }
    }
    return ids;
  }

 private:
  ByteLevelBpe bpe_;
  AddedTokens raw_, normalised_;
  Pattern words_;
  std::unordered_map<std::int32_t, std::string> added_pieces_;
};

Vocabulary read_vocabulary(const nlohmann::json& json, const std::string& what) {
  if (!json.is_object()) fail(ErrorCode::kDataLoss, "{}: the vocabulary is not an object", what);
  Vocabulary out;
  for (const auto& [piece, id] : json.items()) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() > (1 << 30)) {
      fail(ErrorCode::kDataLoss, "{}: the id of {} is {}", what, quote(piece), quote(id.dump()));
    }
    out[piece] = id.get<std::int32_t>();
  }
  return out;
}

using Merges = std::vector<std::pair<std::string, std::string>>;

std::pair<std::string, std::string> read_merge(const std::string& line, const std::string& what) {
  auto space = line.find(' ');
  if (space == std::string::npos || space == 0 || space + 1 == line.size() ||
      line.find(' ', space + 1) != std::string::npos) {
    fail(ErrorCode::kDataLoss, "{}: {} is no merge of two pieces", what, quote(line));
  }
  return {line.substr(0, space), line.substr(space + 1)};
}

Merges read_merges_file(const fs::path& path) {
  std::istringstream lines(read_file(path, kMaxFile));
  Merges out;
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || (out.empty() && line.starts_with("#version"))) continue;
    out.push_back(read_merge(line, path.string()));
  }
  return out;
}

Merges read_merges_json(const nlohmann::json& json, const std::string& what) {
  if (!json.is_array()) fail(ErrorCode::kDataLoss, "{}: its merges are no list", what);
  Merges out;
  for (const auto& merge : json) {
    if (merge.is_string()) {
      out.push_back(read_merge(merge.get<std::string>(), what));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      out.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      fail(ErrorCode::kDataLoss, "{}: {} is no merge of two pieces", what, quote(merge.dump()));
    }
  }
  return out;
}

}  // namespace

std::unique_ptr<Tokenizer> load_clip_tokenizer(const fs::path& folder) {
  Vocabulary vocabulary;
  Merges merges;
  std::vector<AddedToken> added;
  std::string what = (folder / "vocab.json").string();
  nlohmann::json config = nlohmann::json::object();
  if (fs::exists(folder / "tokenizer_config.json"))
    config = read_json_object(folder / "tokenizer_config.json");
  if (fs::exists(folder / "vocab.json") && fs::exists(folder / "merges.txt")) {
    vocabulary = read_vocabulary(read_json_object(folder / "vocab.json"), what);
    merges = read_merges_file(folder / "merges.txt");
  } else if (fs::exists(folder / "tokenizer.json")) {
    what = (folder / "tokenizer.json").string();
    nlohmann::json json = read_json_object(folder / "tokenizer.json");
    const nlohmann::json model = json.value("model", nlohmann::json::object());
    if (!model.is_object() || model.value("type", nlohmann::json("BPE")) != "BPE") {
      fail(ErrorCode::kUnimplemented, "{}: a CLIP tokenizer is a BPE model; this is another", what);
    }
    vocabulary = read_vocabulary(model.value("vocab", nlohmann::json()), what);
    merges = read_merges_json(model.value("merges", nlohmann::json()), what);
    added = read_added_tokens(json.value("added_tokens", nlohmann::json()), what);
  } else {
    fail(ErrorCode::kNotFound,
         "{}: no tokenizer there; looked for vocab.json with merges.txt, and tokenizer.json",
         folder.string());
  }
  // The config's tokens win over those of tokenizer.json.
  if (config.contains("added_tokens_decoder")) {
    added = read_added_tokens(config["added_tokens_decoder"], (folder / "tokenizer_config.json").string());
  }
  nlohmann::json map = nlohmann::json::object();
  if (fs::exists(folder / "special_tokens_map.json"))
    map = read_json_object(folder / "special_tokens_map.json");
  auto token_id = [&](const char* key, const std::string& fallback) {
    std::string content = special_token(config, key);
    if (content.empty()) content = special_token(map, key);
    if (content.empty()) content = fallback;
    for (const AddedToken& token : added) {
      if (token.content == content) return token.id;
    }
    auto it = vocabulary.find(content);
    if (it == vocabulary.end()) {
      fail(ErrorCode::kDataLoss, "{}: the {} {} is not in the vocabulary", what, key, quote(content));
    }
    // A special token is found in texts whether or not the files list it.
    added.push_back({content, it->second, false});
    return it->second;
  };
  std::int32_t start = token_id("bos_token", "<|startoftext|>"), end = token_id("eos_token", "<|endoftext|>");
  std::int32_t unknown = token_id("unk_token", "<|endoftext|>"), pad = token_id("pad_token", "<|endoftext|>");
  ByteLevelBpe bpe(std::move(vocabulary), merges, "</w>", unknown, what);
  return std::make_unique<ClipTokenizer>(std::move(bpe), added, start, end, pad,
                                         read_model_max_length(config, 77));
}

}  // namespace tessera::text
