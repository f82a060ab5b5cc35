#include "tessera/text/bpe_tokenizer.h"

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
using nlohmann::json;

// How Qwen's tokenizers cut texts.
constexpr const char* kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr int kLongestText = 1 << 20;  // where the config states none

// What the files say.
struct Parts {
  std::string what;  // for messages
  Vocabulary vocabulary;
  Merges merges;
  bool whole_words = false, nfc = false;
  std::vector<Pattern> patterns;  // each cuts what the one before left
  std::vector<AddedToken> added;
  std::vector<std::int32_t> before, after;
};

class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(Parts parts, std::int32_t pad, bool pads_left, int max_length)
      : bpe_(std::move(parts.vocabulary), parts.merges, "", ByteLevelBpe::kNoUnknown, parts.what,
             parts.whole_words),
        raw_(parts.added, false),
        normalised_(parts.added, true),
        patterns_(std::move(parts.patterns)),
        nfc_(parts.nfc) {
    before_ = std::move(parts.before);
    after_ = std::move(parts.after);
    pad_token_id_ = pad;
    pads_left_ = pads_left;
    model_max_length_ = max_length;
    for (const AddedToken& token : parts.added) added_[token.id] = token;
  }

  std::string piece(std::int32_t id) const override {
    auto it = added_.find(id);
    return it == added_.end() ? bpe_.piece(id) : it->second.content;
  }

  std::string decode(const std::vector<std::int32_t>& ids) const override {
    std::string out;
    for (std::int32_t id : ids) {
      auto it = added_.find(id);
      if (it == added_.end()) {
        out += bpe_.decode_piece(bpe_.piece(id));
      } else if (!it->second.special) {
        out += it->second.content;
      }
    }
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
      std::string normal(std::get<std::string_view>(raw));
      if (nfc_) normal = nfc(normal);
      for (const Segment& segment : normalised_.split(normal)) {
        if (const auto* id = std::get_if<std::int32_t>(&segment)) {
          ids.push_back(*id);
        } else {
          encode_piece(std::get<std::string_view>(segment), 0, ids);
        }
      }
    }
    return ids;
  }

 private:
  // Cuts by the patterns from the index on, then encodes.
  void encode_piece(std::string_view text, std::size_t index, std::vector<std::int32_t>& ids) const {
    if (index == patterns_.size()) return bpe_.encode(text, ids);
    patterns_[index].for_each_piece(text,
                                    [&](std::string_view piece) { encode_piece(piece, index + 1, ids); });
  }

  ByteLevelBpe bpe_;
  AddedTokens raw_, normalised_;
  std::vector<Pattern> patterns_;
  bool nfc_;
  std::unordered_map<std::int32_t, AddedToken> added_;
};

[[noreturn]] void unsupported(const std::string& what, const char* part, const json& value) {
  fail(ErrorCode::kUnimplemented, "{}: the {} {} is not supported", what, part, quote(value.dump(), 100));
}

bool flag(const json& object, const char* key, bool fallback) {
  auto it = object.find(key);
  return it == object.end() || !it->is_boolean() ? fallback : it->get<bool>();
}

std::string type_of(const json& object) {
  return object.is_object() && object.contains("type") && object["type"].is_string()
             ? object["type"].get<std::string>()
             : "";
}

// The members of a "Sequence", or the one thing there is; none for null.
std::vector<json> sequence(const json& value, const char* members) {
  if (value.is_null()) return {};
  if (type_of(value) != "Sequence") return {value};
  const json list = value.value(members, json::array());
  return list.is_array() ? list.get<std::vector<json>>() : std::vector<json>{value};
}

void read_pre_tokenizer(const json& value, Parts& parts) {
  for (const json& step : sequence(value, "pretokenizers")) {
    std::string type = type_of(step);
    const json pattern = step.is_object() ? step.value("pattern", json()) : json();
    bool splits = type == "Split" && step.value("behavior", json()) == "Isolated" &&
                  !flag(step, "invert", false) && pattern.is_object() && pattern.contains("Regex") &&
                  pattern["Regex"].is_string();
    bool bytes =
        type == "ByteLevel" && !flag(step, "use_regex", true) && !flag(step, "add_prefix_space", true);
    if (!splits && !bytes) unsupported(parts.what, "pre_tokenizer", step);
    if (splits) parts.patterns.emplace_back(pattern["Regex"].get<std::string>(), parts.what);
  }
}

// The special tokens that a template puts before and after every text.
void read_post_processor(const json& value, Parts& parts) {
  for (const json& step : sequence(value, "processors")) {
    std::string type = type_of(step);
    if (type == "ByteLevel") continue;
    if (type != "TemplateProcessing") unsupported(parts.what, "post_processor", step);
    bool seen = false;
    const json single = step.value("single", json::array());
    for (const json& item : single) {
      if (item.is_object() && item.contains("Sequence")) {
        seen = true;
        continue;
      }
      const json token = item.is_object() ? item.value("SpecialToken", json()) : json();
      const json id = token.is_object() ? token.value("id", json()) : json();
      const json specials = step.value("special_tokens", json::object());
      if (!id.is_string() || !specials.is_object() || !specials.contains(id.get<std::string>())) {
        fail(ErrorCode::kDataLoss, "{}: the post_processor's template names no token with {}", parts.what,
             quote(item.dump(), 100));
      }
      const json entry = specials[id.get<std::string>()];
      const json ids = entry.is_object() ? entry.value("ids", json()) : json();
      for (const json& i : ids) {
        if (!i.is_number_integer() || i.get<std::int64_t>() < 0 || i.get<std::int64_t>() > (1 << 30)) {
          fail(ErrorCode::kDataLoss, "{}: the post_processor's id {} is none", parts.what,
               quote(i.dump(), 40));
        }
        (seen ? parts.after : parts.before).push_back(i.get<std::int32_t>());
      }
    }
  }
}

Parts read_tokenizer_json(const fs::path& path) {
  Parts parts;
  parts.what = path.string();
  json file = read_json_object(path);
  const json model = file.value("model", json::object());
  if (!model.is_object() || model.value("type", json("BPE")) != "BPE") {
    fail(ErrorCode::kUnimplemented, "{}: its model is no BPE, which is the one supported here", parts.what);
  }
  for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const json value = model.value(key, json());
    if (!value.is_null() && value != "") unsupported(parts.what, key, value);
  }
  if (flag(model, "byte_fallback", false)) unsupported(parts.what, "byte_fallback", true);
  parts.whole_words = flag(model, "ignore_merges", false);
  parts.vocabulary = read_vocabulary(model.value("vocab", json()), parts.what);
  parts.merges = read_merges_json(model.value("merges", json()), parts.what);
  parts.added = read_added_tokens(file.value("added_tokens", json()), parts.what);
  const json normalizer = file.value("normalizer", json());
  parts.nfc = type_of(normalizer) == "NFC";
  if (!normalizer.is_null() && !parts.nfc) unsupported(parts.what, "normalizer", normalizer);
  read_pre_tokenizer(file.value("pre_tokenizer", json()), parts);
  read_post_processor(file.value("post_processor", json()), parts);
  return parts;
}

Parts read_qwen_files(const fs::path& folder) {
  Parts parts;
  parts.what = (folder / "vocab.json").string();
  parts.vocabulary = read_vocabulary(read_json_object(folder / "vocab.json"), parts.what);
  parts.merges = read_merges_file(folder / "merges.txt");
  parts.nfc = true;
  parts.patterns.emplace_back(kQwenPattern, parts.what);
  return parts;
}

// The token that the config, or the map beside it, calls `key`.
std::int32_t token_id(const fs::path& folder, const json& config, const Parts& parts, const char* key) {
  std::string content = special_token(config, key);
  if (content.empty() && fs::exists(folder / "special_tokens_map.json")) {
    content = special_token(read_json_object(folder / "special_tokens_map.json"), key);
  }
  for (const AddedToken& token : parts.added) {
    if (token.content == content) return token.id;
  }
  auto it = parts.vocabulary.find(content);
  if (content.empty() || it == parts.vocabulary.end()) {
    fail(ErrorCode::kDataLoss, "{}: the {} {} is not in the vocabulary", folder.string(), key,
         quote(content));
  }
  return it->second;
}

}  // namespace

std::unique_ptr<Tokenizer> load_bpe_tokenizer(const fs::path& folder) {
  json config = json::object();
  if (fs::exists(folder / "tokenizer_config.json"))
    config = read_json_object(folder / "tokenizer_config.json");
  Parts parts;
  if (fs::exists(folder / "tokenizer.json")) {
    parts = read_tokenizer_json(folder / "tokenizer.json");
  } else if (fs::exists(folder / "vocab.json") && fs::exists(folder / "merges.txt")) {
    parts = read_qwen_files(folder);
  } else {
    fail(ErrorCode::kNotFound,
         "{}: no tokenizer there; looked for tokenizer.json, and vocab.json with merges.txt",
         folder.string());
  }
  // The config's tokens win over those of tokenizer.json.
  if (config.contains("added_tokens_decoder")) {
    parts.added =
        read_added_tokens(config["added_tokens_decoder"], (folder / "tokenizer_config.json").string());
  }
  std::int32_t pad = token_id(folder, config, parts, "pad_token");
  const json side = config.value("padding_side", json("right"));
  if (side != "left" && side != "right") {
    fail(ErrorCode::kDataLoss, "{}: padding_side is {}; it must be left or right",
         (folder / "tokenizer_config.json").string(), quote(side.dump(), 40));
  }
  return std::make_unique<BpeTokenizer>(std::move(parts), pad, side == "left",
                                        read_model_max_length(config, kLongestText));
}

}  // namespace tessera::text
