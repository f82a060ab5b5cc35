#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera::text {

// A token that is found in a text as it stands there, before the model sees the rest.
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool normalized = false;              // looked for after normalisation
  bool lstrip = false, rstrip = false;  // takes the white space before, after it along
  bool special = false;                 // left out of decoded text
};

// A stretch of text between added tokens, or the id of one.
using Segment = std::variant<std::string_view, std::int32_t>;

// Finds tokens in texts: at each place the longest.
class AddedTokens {
 public:
  AddedTokens() = default;
  // Tokens that are (`normalized`) or are not looked for after normalisation. Empty ones are passed over.
  AddedTokens(const std::vector<AddedToken>& tokens, bool normalized);
  std::vector<Segment> split(std::string_view text) const;

 private:
  std::array<std::vector<AddedToken>, 256> tokens_;  // by their first byte, longest first
};

// The tokens of tokenizer_config.json's added_tokens_decoder ({"id": {...}}), or of tokenizer.json's
// added_tokens
// ([{"id": ..., ...}]). Throws kDataLoss, beginning with `what`, for what is not of that form, kUnimplemented
// for tokens that strip white space or want whole words.
std::vector<AddedToken> read_added_tokens(const nlohmann::json& json, const std::string& what);

// The text of a special token in a tokenizer's config: a string, or an object with "content". Empty if it is
// absent.
std::string special_token(const nlohmann::json& config, const char* key);

// model_max_length of a config, or the fallback where it is absent or larger than any model's.
int read_model_max_length(const nlohmann::json& config, int fallback);

}  // namespace tessera::text
