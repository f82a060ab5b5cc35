#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text {

struct EncodeOptions {
  // Ids to fill up to and to cut down to; the tokenizer's own length if not given.
  std::optional<int> max_length = std::nullopt;
  bool pad = true;
  bool truncate = true;
  bool add_special_tokens = true;  // those that the tokenizer puts around every text
  // Bytes at the beginning and the end of the text that a chat's form put there: they are not named as lost.
  std::size_t form_before = 0, form_after = 0;
};

struct Encoding {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> attention_mask;  // 1 for ids of the text, 0 for padding
  std::string lost_text;  // what truncation cut off, in the words of the text; empty if nothing was
};

// Turns text into the ids that Transformers 5 gives. Functions are const and may be called from several
// threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Throws kInvalidArgument, with the byte's position, for text that is not UTF-8, and for a max_length that
  // does not even hold the special tokens.
  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;

  // The piece of text that an id stands for, as the vocabulary writes it.
  virtual std::string piece(std::int32_t id) const = 0;
  // Ids back to text; special tokens are left out.
  virtual std::string decode(const std::vector<std::int32_t>& ids) const = 0;
  int model_max_length() const { return model_max_length_; }
  std::int32_t pad_token_id() const { return pad_token_id_; }

 protected:
  // Ids of the text alone.
  virtual std::vector<std::int32_t> encode_text(std::string_view text) const = 0;

  // The words of the text, those before the byte `from` left out, from the first on that is not wholly within
  // its first `room` ids.
  std::string lost_text(std::string_view text, std::size_t from, std::size_t room) const;

  std::vector<std::int32_t> before_, after_;  // special tokens around a text
  int model_max_length_ = 0;
  std::int32_t pad_token_id_ = 0;
  bool pads_left_ = false;
};

// Loads the tokenizer in `folder` by the class that model_index.json names. Throws kUnimplemented, listing
// the classes there are, for another; kNotFound or kDataLoss, naming the file, for files that are missing or
// damaged.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder, std::string_view class_name);

}  // namespace tessera::text
