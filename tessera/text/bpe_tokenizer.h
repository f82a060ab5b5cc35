#pragma once

#include <filesystem>
#include <memory>

#include "tessera/text/tokenizer.h"

namespace tessera::text {

// The byte-level BPE tokenizers of language models (Mistral's tekken, Qwen) from tokenizer.json, with
// tokenizer_config.json beside it: special tokens are found first, the rest is normalised (NFC or not at all)
// and cut by the file's patterns, each piece is encoded by byte pairs. Without tokenizer.json, vocab.json and
// merges.txt are read as Qwen's. The config says on which side and with which token texts are padded.
std::unique_ptr<Tokenizer> load_bpe_tokenizer(const std::filesystem::path& folder);

}  // namespace tessera::text
