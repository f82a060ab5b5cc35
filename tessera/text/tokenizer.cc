#include "tessera/text/tokenizer.h"

#include "tessera/base/error.h"
#include "tessera/base/quote.h"
#include "tessera/text/clip_tokenizer.h"
#include "tessera/text/t5_tokenizer.h"
#include "tessera/text/unicode.h"

namespace tessera::text {

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
    out.lost_text = decode({ids.begin() + static_cast<std::ptrdiff_t>(room), ids.end()});
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
