#include "tessera/text/clip_tokenizer.h"

#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/base/quote.h"
#include "tessera/text/added_tokens.h"
#include "tessera/text/bpe_files.h"
#include "tessera/text/byte_level_bpe.h"
#include "tessera/text/pattern.h"
#include "tessera/text/unicode.h"

namespace tessera::text {
namespace {

namespace fs = std::filesystem;

// The words of a normalised text.
constexpr const char* kWords =
    R"(<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+)";

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
      : bpe_(std::move(bpe)), raw_(added, false), normalised_(added, true), words_(kWords, "CLIP's words") {
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
          words_.for_each_match(std::get<std::string_view>(segment),
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
