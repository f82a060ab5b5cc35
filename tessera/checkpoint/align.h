#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

namespace tessera::checkpoint {

// What align_checkpoint wrote.
struct Aligned {
  std::int64_t files = 0;          // safetensors files
  std::int64_t tensors = 0;        // in them
  std::int64_t bytes = 0;          // of them
  std::int64_t padding_bytes = 0;  // of those, in padding tensors
  std::int64_t other_files = 0;    // copied as they are
};

// Copies the folder `in` to `out`, which must not exist, with every safetensors file laid out so that each
// tensor begins at a multiple of 64 bytes and can be used from the mapped file without a copy. Links are
// followed, so that a snapshot of the Hub cache becomes a plain folder.
//
// The reference reader allows no holes between tensors. So tensors whose size is a multiple of 64 come first,
// in the order of the old file, and the others last, with a tensor of up to 63 zeros (kPaddingPrefix, see
// safetensors.h) between two of them. Metadata stay.
//
// `out` appears whole or not at all. `progress` is called with the bytes written so far, before each file;
// what it throws ends the copying. Throws kInvalidArgument if `in` is no folder, `out` exists or lies inside
// `in`, or `in` holds something that is neither file nor folder; kNotFound if the folder for `out` is
// missing; kDataLoss for a damaged safetensors file; kUnavailable, naming the file, for what cannot be read
// or written.
Aligned align_checkpoint(const std::filesystem::path& in, const std::filesystem::path& out,
                         const std::function<void(std::int64_t)>& progress = {});

}  // namespace tessera::checkpoint
