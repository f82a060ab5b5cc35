#pragma once

#include <filesystem>
#include <memory>

#include "tessera/text/tokenizer.h"

namespace tessera::text {

// T5's tokenizer from tokenizer.json, or from spiece.model where that is missing, with tokenizer_config.json
// beside it. As Transformers 5 does, special tokens are found first, then text is normalised by the character
// map and split at white space; each word gets the mark U+2581 before it and is cut by the unigram model.
std::unique_ptr<Tokenizer> load_t5_tokenizer(const std::filesystem::path& folder);

}  // namespace tessera::text
