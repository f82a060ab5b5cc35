#include "tessera/pipelines/loading.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/quote.h"

namespace tessera::pipelines {

void Loader::expect_class(std::string_view component, std::initializer_list<std::string_view> classes) const {
  checkpoint::Component found = folder_.require_component(component);
  if (std::ranges::find(classes, found.class_name) != classes.end()) return;
  fail(ErrorCode::kUnimplemented, "{}: the {} class {} is not supported; supported: {}",
       folder_.path().string(), component, quote(found.class_name), fmt::join(classes, ", "));
}

std::unique_ptr<text::Tokenizer> Loader::tokenizer(std::string_view component) const {
  checkpoint::Component found = folder_.require_component(component);
  return text::load_tokenizer(found.folder, found.class_name);
}

void check_compute_dtype(DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kBF16) return;
  fail(ErrorCode::kUnimplemented,
       "computing in {} is not supported; use f32 or bf16 (weights of any float dtype are converted)",
       dtype_name(dtype));
}

TokenBatch tokenize_batch(const text::Tokenizer& tokenizer, std::string_view encoder,
                          const std::vector<std::string>& texts, int length, const text::ChatForm* form) {
  TokenBatch batch;
  batch.shape = Shape{static_cast<std::int64_t>(texts.size()), length};
  for (const std::string& text : texts) {
    text::Encoding encoding = form != nullptr ? text::encode_chat(tokenizer, *form, text, length)
                                              : tokenizer.encode(text, {.max_length = length});
    if (!encoding.lost_text.empty()) {
      log(LogLevel::kWarning, "the prompt is too long for {} ({} tokens); it does not see: {}", encoder,
          length, quote(encoding.lost_text, 400));
    }
    batch.ids.insert(batch.ids.end(), encoding.ids.begin(), encoding.ids.end());
    batch.attention_mask.insert(batch.attention_mask.end(), encoding.attention_mask.begin(),
                                encoding.attention_mask.end());
  }
  return batch;
}

}  // namespace tessera::pipelines
