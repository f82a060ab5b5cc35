#pragma once

#include <filesystem>
#include <memory>

#include "tessera/text/tokenizer.h"

namespace tessera::text {

// CLIP's tokenizer from vocab.json and merges.txt, or from tokenizer.json where those are missing, with
// tokenizer_config.json beside them. Text is normalised (NFC, runs of white space to one space, lower case)
// and split into words, numbers' digits and runs of other signs; each is encoded by byte pairs.
std::unique_ptr<Tokenizer> load_clip_tokenizer(const std::filesystem::path& folder);

}  // namespace tessera::text
