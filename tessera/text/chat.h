#pragma once

#include <string>
#include <string_view>

#include "tessera/text/tokenizer.h"

namespace tessera::text {

// What stands around a prompt when it is put to a language model, and what is taken out of it first: the
// published chat template, written out for the one conversation that a pipeline has.
struct ChatForm {
  std::string before, after, removed;
};

// The form for a tokenizer's class, or null if prompts are put to it as they are. Diffusers' Flux2Pipeline
// (PixtralProcessor): a system message and the prompt, without [IMG]. Flux2KleinPipeline (Qwen2Tokenizer and
// its fast twin): the prompt, and an answer that begins without thinking.
const ChatForm* find_chat_form(std::string_view tokenizer_class);

// The prompt in its form, cut or padded to max_length ids. The tokenizer adds no special tokens: the form has
// them. What truncation cuts off is named in the words of the prompt.
Encoding encode_chat(const Tokenizer& tokenizer, const ChatForm& form, std::string_view prompt,
                     int max_length);

}  // namespace tessera::text
