#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/base/shape.h"

namespace tessera::checkpoint {

// A tensor stored on the host: row-major, packed, little-endian. `owner` keeps `data` alive; copy the view,
// or only the owner, to hold on to the bytes. `data` need not be aligned to the dtype.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> data;
  std::shared_ptr<const void> owner;
};

// Tensors whose names begin so hold nothing: align_checkpoint puts them between others where other readers
// allow no hole. They are checked and then passed over.
inline constexpr std::string_view kPaddingPrefix = "tessera_padding.";

// A safetensors file (https://github.com/huggingface/safetensors, "Format"), mapped read-only. Opening reads
// and checks the whole header, so every view it hands out lies inside the file.
//
// What is refused, always with kDataLoss and a message that names the file and the tensor: a file shorter
// than its header says, a header beyond 100 MB (the limit of the reference library) or not a JSON object; an
// unknown dtype; a shape of more than Shape::kMaxRank axes, with a negative extent or too many elements;
// offsets that are not two numbers, run backwards, past the end or over another tensor; a byte count that is
// not the shape's; a name given twice; metadata that is not text. As in the reference library, bytes after
// the last tensor are refused: they mean a damaged file. Unlike there, holes between tensors are accepted:
// they harm nobody and let writers align their tensors.
class SafetensorsFile {
 public:
  // Also throws kNotFound or kUnavailable if the file cannot be mapped.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  // Ordered by name.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  // The tensor of that name, or nullptr. Valid as long as this object (moving it keeps it valid).
  const TensorView* find(std::string_view name) const;
  // The text entries of "__metadata__".
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::filesystem::path path_;
  std::vector<TensorView> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Writes a safetensors file, in the order given (`owner` is not looked at), beside its place and then renames
// it. The data begin at a multiple of 64 bytes. Throws kInvalidArgument for a name that is empty, given twice
// or "__metadata__" and for data that do not have the bytes of shape and dtype; errors of writing as
// AtomicFile.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera::checkpoint
