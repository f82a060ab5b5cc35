#include "tessera/text/chat.h"

namespace tessera::text {
namespace {

const ChatForm& flux2_form() {
  static const ChatForm form{
      .before =
          "<s>[SYSTEM_PROMPT]You are an AI that reasons about image descriptions. You give structured "
          "responses focusing on object relationships, object\nattribution and actions without "
          "speculation.[/SYSTEM_PROMPT][INST]",
      .after = "[/INST]",
      .removed = "[IMG]"};
  return form;
}

const ChatForm& qwen_form() {
  static const ChatForm form{.before = "<|im_start|>user\n",
                             .after = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
                             .removed = ""};
  return form;
}

}  // namespace

const ChatForm* find_chat_form(std::string_view tokenizer_class) {
  if (tokenizer_class == "PixtralProcessor") return &flux2_form();
  if (tokenizer_class == "Qwen2Tokenizer" || tokenizer_class == "Qwen2TokenizerFast") return &qwen_form();
  return nullptr;
}

Encoding encode_chat(const Tokenizer& tokenizer, const ChatForm& form, std::string_view prompt,
                     int max_length) {
  std::string text = form.before;
  for (std::size_t at = 0; at <= prompt.size();) {
    std::size_t end = form.removed.empty() ? std::string_view::npos : prompt.find(form.removed, at);
    text += prompt.substr(at, end - at);
    if (end == std::string_view::npos) break;
    at = end + form.removed.size();
  }
  text += form.after;
  return tokenizer.encode(text, {.max_length = max_length,
                                 .add_special_tokens = false,
                                 .form_before = form.before.size(),
                                 .form_after = form.after.size()});
}

}  // namespace tessera::text
