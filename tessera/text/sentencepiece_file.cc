#include "tessera/text/sentencepiece_file.h"

#include <bit>
#include <cstring>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/base/file.h"

namespace tessera::text {
namespace {

constexpr std::size_t kMaxFile = std::size_t{64} << 20;

// A field of a protobuf message in wire format.
struct Field {
  std::uint32_t number = 0;
  std::uint64_t value = 0;  // of a number
  std::string_view bytes;   // of a text or message
};

// Takes a message apart field by field.
class Message {
 public:
  Message(std::string_view bytes, const std::string& what) : rest_(bytes), what_(what) {}

  bool next(Field& field) {
    if (rest_.empty()) return false;
    std::uint64_t tag = varint();
    field = {static_cast<std::uint32_t>(tag >> 3), 0, {}};
    switch (tag & 7) {
      case 0:
        field.value = varint();
        return true;
      case 1:
        field.value = fixed(8);
        return true;
      case 2:
        field.bytes = take(varint());
        return true;
      case 5:
        field.value = fixed(4);
        return true;
      default:
        damaged();
    }
  }

 private:
  [[noreturn]] void damaged() const {
    fail(ErrorCode::kDataLoss, "{}: it is no SentencePiece model, or damaged", what_);
  }
  std::string_view take(std::uint64_t n) {
    if (n > rest_.size()) damaged();
    std::string_view out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return out;
  }
  std::uint64_t varint() {
    std::uint64_t out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      auto byte = static_cast<unsigned char>(take(1)[0]);
      out |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return out;
    }
    damaged();
  }
  std::uint64_t fixed(std::size_t n) {
    std::uint64_t out = 0;
    std::memcpy(&out, take(n).data(), n);
    return out;
  }

  std::string_view rest_;
  const std::string& what_;
};

constexpr std::uint64_t kUnknownType = 2, kUnigramModel = 1;

}  // namespace

SentencePieceFile read_sentencepiece_file(const std::filesystem::path& path) {
  std::string content = read_file(path, kMaxFile), what = path.string();
  SentencePieceFile out;
  out.unknown_id = -1;
  std::uint64_t model_type = kUnigramModel;
  Message model(content, what);
  for (Field f; model.next(f);) {
    if (f.number == 1) {  // pieces
      ScoredPiece piece;
      std::uint64_t type = 1;
      Message message(f.bytes, what);
      for (Field p; message.next(p);) {
        if (p.number == 1) piece.piece = p.bytes;
        if (p.number == 2)
          piece.score = static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(p.value)));
        if (p.number == 3) type = p.value;
      }
      if (type == kUnknownType) out.unknown_id = static_cast<std::int32_t>(out.pieces.size());
      out.pieces.push_back(std::move(piece));
    } else if (f.number == 2) {  // trainer_spec
      Message message(f.bytes, what);
      for (Field t; message.next(t);) {
        if (t.number == 3) model_type = t.value;
      }
    } else if (f.number == 3) {  // normalizer_spec
      Message message(f.bytes, what);
      for (Field n; message.next(n);) {
        if (n.number == 2) out.charsmap = n.bytes;
      }
    }
  }
  if (model_type != kUnigramModel)
    fail(ErrorCode::kUnimplemented, "{}: only unigram models are supported", what);
  if (out.unknown_id < 0) fail(ErrorCode::kDataLoss, "{}: it has no piece for what is unknown", what);
  return out;
}

}  // namespace tessera::text
