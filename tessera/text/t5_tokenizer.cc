#include "tessera/text/t5_tokenizer.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/base/quote.h"
#include "tessera/text/added_tokens.h"
#include "tessera/text/charsmap.h"
#include "tessera/text/sentencepiece_file.h"
#include "tessera/text/unicode.h"
#include "tessera/text/unigram.h"

namespace tessera::text {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = "\u2581";
constexpr int kSentinels = 100;

class T5Tokenizer : public Tokenizer {
 public:
  T5Tokenizer(Unigram unigram, CharsMap map, const std::vector<AddedToken>& added, std::int32_t end,
              std::int32_t pad, int max_length)
      : unigram_(std::move(unigram)), map_(std::move(map)), raw_(added, false), normalised_(added, true) {
    after_ = {end};
    pad_token_id_ = pad;
    model_max_length_ = max_length;
    for (const AddedToken& token : added) added_pieces_[token.id] = token.content;
  }

  std::string piece(std::int32_t id) const override {
    auto it = added_pieces_.find(id);
    if (it != added_pieces_.end()) return it->second;
    bool known = id >= 0 && static_cast<std::size_t>(id) < unigram_.pieces().size();
    return known ? unigram_.pieces()[static_cast<std::size_t>(id)].piece : "";
  }

  std::string decode(const std::vector<std::int32_t>& ids) const override {
    std::string out;
    for (std::int32_t id : ids) {
      if (added_pieces_.contains(id)) continue;
      std::string text = piece(id);
      for (std::size_t at; (at = text.find(kMark)) != std::string::npos;) text.replace(at, kMark.size(), " ");
      out += text;
    }
    return out.starts_with(' ') ? out.substr(1) : out;
  }

 protected:
  std::vector<std::int32_t> encode_text(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    for (const Segment& raw : raw_.split(text)) {
      if (const auto* id = std::get_if<std::int32_t>(&raw)) {
        ids.push_back(*id);
        continue;
      }
      std::string normal = map_.normalise(std::get<std::string_view>(raw));
      for (const Segment& segment : normalised_.split(normal)) {
        if (const auto* id = std::get_if<std::int32_t>(&segment)) {
          ids.push_back(*id);
        } else {
          encode_words(std::get<std::string_view>(segment), ids);
        }
      }
    }
    return ids;
  }

 private:
  void encode_words(std::string_view text, std::vector<std::int32_t>& ids) const {
    std::string word;
    auto flush = [&] {
      if (!word.empty()) encode_word(word, ids);
      word.clear();
    };
    for (std::size_t i = 0; i < text.size();) {
      std::string_view character = text.substr(i, utf8_length(text[i]));
      if (is_white_space(decode_utf8(character)[0])) {
        flush();
      } else {
        word += character;
      }
      i += character.size();
    }
    flush();
  }

  // A word with the mark before it; marks inside it begin words of their own.
  void encode_word(const std::string& word, std::vector<std::int32_t>& ids) const {
    std::string marked = word.starts_with(kMark) ? word : std::string(kMark) + word;
    for (std::size_t begin = 0; begin < marked.size();) {
      std::size_t end = marked.find(kMark, begin + kMark.size());
      if (end == std::string::npos) end = marked.size();
      unigram_.encode(std::string_view(marked).substr(begin, end - begin), ids);
      begin = end;
    }
  }

  Unigram unigram_;
  CharsMap map_;
  AddedTokens raw_, normalised_;
  std::unordered_map<std::int32_t, std::string> added_pieces_;
};

std::string decode_base64(const std::string& text, const std::string& what) {
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    if (c == '=') break;
    static constexpr std::string_view kAlphabet =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    auto value = kAlphabet.find(c);
    if (value == std::string_view::npos)
      fail(ErrorCode::kDataLoss, "{}: its character map is no base64", what);
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>(bits >> count & 0xff));
    }
  }
  return out;
}

// The character map in a normalizer of tokenizer.json, which may be a sequence; empty if it has none.
std::string find_charsmap(const nlohmann::json& normalizer, const std::string& what) {
  if (!normalizer.is_object()) return "";
  auto map = normalizer.find("precompiled_charsmap");
  if (map != normalizer.end() && map->is_string()) return decode_base64(map->get<std::string>(), what);
  auto parts = normalizer.find("normalizers");
  if (parts == normalizer.end() || !parts->is_array()) return "";
  for (const auto& part : *parts) {
    if (std::string found = find_charsmap(part, what); !found.empty()) return found;
  }
  return "";
}

SentencePieceFile read_tokenizer_json(const nlohmann::json& json, const std::string& what) {
  const nlohmann::json model = json.value("model", nlohmann::json::object());
  if (!model.is_object() || !model.contains("vocab") || !model["vocab"].is_array()) {
    fail(ErrorCode::kUnimplemented, "{}: a T5 tokenizer is a Unigram model; this is another", what);
  }
  SentencePieceFile out;
  for (const auto& entry : model["vocab"]) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number() ||
        !std::isfinite(entry[1].get<double>())) {
      fail(ErrorCode::kDataLoss, "{}: {} is no piece with its score", what, quote(entry.dump()));
    }
    out.pieces.push_back({entry[0].get<std::string>(), entry[1].get<double>()});
  }
  auto unknown = model.find("unk_id");
  out.unknown_id = unknown != model.end() && unknown->is_number_integer() ? unknown->get<std::int32_t>() : -1;
  out.charsmap = find_charsmap(json.value("normalizer", nlohmann::json()), what);
  return out;
}

}  // namespace

std::unique_ptr<Tokenizer> load_t5_tokenizer(const fs::path& folder) {
  nlohmann::json config = nlohmann::json::object();
  if (fs::exists(folder / "tokenizer_config.json"))
    config = read_json_object(folder / "tokenizer_config.json");
  SentencePieceFile file;
  std::vector<AddedToken> added;
  std::string what = (folder / "tokenizer.json").string();
  if (fs::exists(folder / "tokenizer.json")) {
    nlohmann::json json = read_json_object(folder / "tokenizer.json");
    file = read_tokenizer_json(json, what);
    added = read_added_tokens(json.value("added_tokens", nlohmann::json()), what);
  } else if (fs::exists(folder / "spiece.model")) {
    what = (folder / "spiece.model").string();
    file = read_sentencepiece_file(folder / "spiece.model");
    // The sentinels follow the pieces, the last one first.
    for (int i = 0; i < kSentinels; ++i) {
      added.push_back({fmt::format("<extra_id_{}>", kSentinels - 1 - i),
                       static_cast<std::int32_t>(file.pieces.size()) + i, false});
    }
  } else {
    fail(ErrorCode::kNotFound, "{}: no tokenizer there; looked for tokenizer.json and spiece.model",
         folder.string());
  }
  if (config.contains("added_tokens_decoder")) {
    added = read_added_tokens(config["added_tokens_decoder"], (folder / "tokenizer_config.json").string());
  }
  Unigram unigram(std::move(file.pieces), file.unknown_id, what);
  auto special = [&](const char* key, const char* fallback) {
    std::string content = special_token(config, key);
    if (content.empty()) content = fallback;
    for (const AddedToken& token : added) {
      if (token.content == content) return token.id;
    }
    std::int32_t id = unigram.find(content);
    if (id < 0)
      fail(ErrorCode::kDataLoss, "{}: the {} {} is not in the vocabulary", what, key, quote(content));
    added.push_back({content, id, false});
    return id;
  };
  std::int32_t end = special("eos_token", "</s>"), pad = special("pad_token", "<pad>");
  special("unk_token", "<unk>");
  CharsMap map(file.charsmap, what);
  return std::make_unique<T5Tokenizer>(std::move(unigram), std::move(map), added, end, pad,
                                       read_model_max_length(config, 512));
}

}  // namespace tessera::text
