#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/text/unigram.h"

namespace tessera::text {

// What a unigram tokenizer needs of a SentencePiece model file.
struct SentencePieceFile {
  std::vector<ScoredPiece> pieces;
  std::string charsmap;         // precompiled, as CharsMap takes it
  std::int32_t unknown_id = 0;  // the piece of type UNKNOWN
};

// Reads spiece.model (protobuf message ModelProto of sentencepiece_model.proto, of which a few fields are
// wanted). Throws kDataLoss, naming the file, for one that is damaged or not a unigram model.
SentencePieceFile read_sentencepiece_file(const std::filesystem::path& path);

}  // namespace tessera::text
