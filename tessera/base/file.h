#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace tessera {

// A whole file mapped read-only into memory (private, never written). The mapping stays as long as the
// shared_ptr, or a copy of it, does. A file that another process shortens while it is mapped cannot be read
// safely: do not do that.
class MappedFile {
 public:
  // Throws kNotFound if there is no such file, kUnavailable if it cannot be read, kInvalidArgument if it is
  // no regular file; all name the path.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  MappedFile() = default;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// The content of a regular file of at most max_bytes. Errors as MappedFile::open, and kDataLoss for a longer
// file.
std::string read_file(const std::filesystem::path& path, std::size_t max_bytes);

// A file written beside its final place and renamed into it, so that nobody ever sees half of it. Without
// commit() nothing is left behind and a file that was there stays as it was. A device or pipe (/dev/null, a
// FIFO) is written directly.
class AtomicFile {
 public:
  // Throws kNotFound if the folder is missing and kUnavailable if the file cannot be written; both name the
  // path.
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends. Throws kUnavailable, with the system's reason (a full disk), if that fails.
  void write(std::span<const std::byte> bytes);
  // Whether a file is on the disk for good when commit() returns. One that is not may be found short or empty
  // after a crash of the machine: only for files that carry a checksum and can be made again.
  enum class Durability { kDurable, kFast };
  // Puts the file into place. Throws kUnavailable; nothing is left behind then.
  void commit(Durability durability = Durability::kDurable);

 private:
  void close_and_remove() noexcept;

  std::filesystem::path shown_;      // as the caller gave it: for messages
  std::filesystem::path target_;     // with symbolic links followed
  std::filesystem::path temporary_;  // empty when the target is written directly
  int descriptor_ = -1;
};

// Removes the temporary files in `folder` that an AtomicFile of a killed process left behind; those that
// somebody still writes stay. Returns how many were removed. What cannot be read or removed is passed over.
std::size_t remove_abandoned_temporaries(const std::filesystem::path& folder);

}  // namespace tessera
