#include "tessera/text/added_tokens.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/text/unicode.h"

namespace tessera::text {
namespace {

bool flag(const nlohmann::json& token, const char* key) {
  auto it = token.find(key);
  return it != token.end() && it->is_boolean() && it->get<bool>();
}

// Bytes of white space at either end of a text.
std::size_t leading_white_space(std::string_view text) {
  std::size_t n = 0;
  while (n < text.size()) {
    std::string_view character = text.substr(n, utf8_length(text[n]));
    if (!is_white_space(decode_utf8(character)[0])) break;
    n += character.size();
  }
  return n;
}

std::size_t trailing_white_space(std::string_view text) {
  std::size_t n = 0;
  while (n < text.size()) {
    std::size_t begin = text.size() - n - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
    std::string_view character = text.substr(begin, text.size() - n - begin);
    if (!is_white_space(decode_utf8(character)[0])) break;
    n += character.size();
  }
  return n;
}

AddedToken read_token(const nlohmann::json& token, std::int64_t id, const std::string& what) {
  if (!token.is_object() || !token.contains("content") || !token["content"].is_string() || id < 0 ||
      id > (1 << 30)) {
    fail(ErrorCode::kDataLoss, "{}: an added token is not of the form {{\"id\", \"content\", ...}}", what);
  }
  AddedToken out{token["content"].get<std::string>(), static_cast<std::int32_t>(id),
                 flag(token, "normalized")};
  out.lstrip = flag(token, "lstrip");
  out.rstrip = flag(token, "rstrip");
  out.special = flag(token, "special");
  if (flag(token, "single_word")) {
    fail(ErrorCode::kUnimplemented, "{}: 'single_word' of the added token {} is not supported", what,
         out.content);
  }
  return out;
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, bool normalized) {
  for (const AddedToken& token : tokens) {
    if (token.normalized != normalized || token.content.empty()) continue;
    tokens_[static_cast<unsigned char>(token.content[0])].push_back(token);
  }
  for (std::vector<AddedToken>& same_start : tokens_) {
    std::ranges::stable_sort(same_start, std::ranges::greater(),
                             [](const AddedToken& t) { return t.content.size(); });
  }
}

std::vector<Segment> AddedTokens::split(std::string_view text) const {
  std::vector<Segment> out;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    std::string_view rest = text.substr(i);
    const std::vector<AddedToken>& candidates = tokens_[static_cast<unsigned char>(rest[0])];
    auto it =
        std::ranges::find_if(candidates, [&](const AddedToken& t) { return rest.starts_with(t.content); });
    if (it == candidates.end()) {
      ++i;
      continue;
    }
    std::string_view before = text.substr(begin, i - begin);
    if (it->lstrip) before = before.substr(0, before.size() - trailing_white_space(before));
    if (!before.empty()) out.emplace_back(before);
    out.emplace_back(it->id);
    i += it->content.size();
    if (it->rstrip) i += leading_white_space(text.substr(i));
    begin = i;
  }
  if (begin < text.size()) out.emplace_back(text.substr(begin));
  return out;
}

std::vector<AddedToken> read_added_tokens(const nlohmann::json& json, const std::string& what) {
  std::vector<AddedToken> out;
  if (json.is_array()) {
    for (const auto& token : json) {
      bool has_id = token.is_object() && token.contains("id") && token["id"].is_number_integer();
      out.push_back(read_token(token, has_id ? token["id"].get<std::int64_t>() : -1, what));
    }
  } else if (json.is_object()) {
    for (const auto& [key, token] : json.items()) {
      std::int64_t id = -1;
      auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (code != std::errc() || end != key.data() + key.size()) id = -1;
      out.push_back(read_token(token, id, what));
    }
  } else if (!json.is_null()) {
    fail(ErrorCode::kDataLoss, "{}: its added tokens are neither a list nor an object", what);
  }
  return out;
}

std::string special_token(const nlohmann::json& config, const char* key) {
  auto it = config.find(key);
  if (it == config.end()) return "";
  if (it->is_string()) return it->get<std::string>();
  if (it->is_object() && it->contains("content") && (*it)["content"].is_string()) {
    return (*it)["content"].get<std::string>();
  }
  return "";
}

int read_model_max_length(const nlohmann::json& config, int fallback) {
  auto it = config.find("model_max_length");
  if (it == config.end() || !it->is_number()) return fallback;
  double value = it->get<double>();
  return value >= 1 && value <= 1 << 20 ? static_cast<int>(value) : fallback;
}

}  // namespace tessera::text
