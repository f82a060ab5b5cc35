#include "tessera/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "tessera/base/error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporaryPrefix = ".tessera-", kTemporarySuffix = ".tmp";

std::string reason(int error) { return std::system_category().message(error); }

[[noreturn]] void fail_to_read(const fs::path& path, int error) {
  if (error == ENOENT || error == ENOTDIR)
    fail(ErrorCode::kNotFound, "{}: there is no such file", path.string());
  fail(ErrorCode::kUnavailable, "{}: cannot be read: {}", path.string(), reason(error));
}

[[noreturn]] void fail_to_write(const fs::path& path, int error) {
  if (error == ENOENT) {
    fail(ErrorCode::kNotFound, "{}: cannot be written: there is no folder {}", path.string(),
         path.has_parent_path() ? path.parent_path().string() : ".");
  }
  fail(ErrorCode::kUnavailable, "{}: cannot be written: {}", path.string(), reason(error));
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

// Opens a regular file for reading and says how long it is. O_NONBLOCK: a pipe must not make us wait before
// it is refused.
int open_regular(const fs::path& path, std::size_t& size) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail_to_read(path, errno);
  struct stat info {};
  int error = ::fstat(descriptor, &info) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(info.st_mode)) {
    size = static_cast<std::size_t>(info.st_size);
    return descriptor;
  }
  ::close(descriptor);
  if (error != 0) fail_to_read(path, error);
  invalid_argument("{}: is {}, not a file", path.string(),
                   S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const fs::path& path) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = path;
  std::size_t size = 0;
  Descriptor descriptor(open_regular(path, size));
  if (size == 0) return file;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
  if (data == MAP_FAILED) fail_to_read(path, errno);
  file->data_ = static_cast<const std::byte*>(data);
  file->size_ = size;
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string read_file(const fs::path& path, std::size_t max_bytes) {
  std::size_t size = 0;
  Descriptor descriptor(open_regular(path, size));
  if (size > max_bytes) {
    fail(ErrorCode::kDataLoss, "{}: has {} bytes; at most {} are expected", path.string(), size, max_bytes);
  }
  std::string text(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    ssize_t n = ::read(descriptor.get(), text.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_to_read(path, errno);
    if (n == 0) break;  // shortened meanwhile
    done += static_cast<std::size_t>(n);
  }
  text.resize(done);
  return text;
}

AtomicFile::AtomicFile(const fs::path& path) : shown_(path), target_(path) {
  std::error_code ignored;
  if (fs::is_symlink(target_, ignored)) {
    fs::path resolved = fs::weakly_canonical(target_, ignored);
    if (!ignored) target_ = resolved;
  }
  struct stat info {};
  bool exists = ::stat(target_.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    fail(ErrorCode::kUnavailable, "{}: cannot be written: it is a folder", shown_.string());
  }
  if (exists && ::access(target_.c_str(), W_OK) != 0 && errno != ENOENT) fail_to_write(shown_, errno);
  if (exists && !S_ISREG(info.st_mode)) {
    descriptor_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail_to_write(shown_, errno);
    return;
  }
  static std::atomic<unsigned> counter{0};
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary_ = target_.parent_path() /
                 fmt::format("{}{}-{}{}", kTemporaryPrefix, ::getpid(), counter++, kTemporarySuffix);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) fail_to_write(shown_, errno);
    if (descriptor_ < 0) continue;
    // Tells remove_abandoned_temporaries that somebody is at work, unless it came first.
    bool taken = ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!taken && ::fstat(descriptor_, &info) == 0 && info.st_nlink > 0) return;
    close_and_remove();
  }
  fail_to_write(shown_, EEXIST);
}

AtomicFile::~AtomicFile() { close_and_remove(); }

void AtomicFile::close_and_remove() noexcept {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  descriptor_ = -1;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  check_internal(descriptor_ >= 0, "write to a file after commit()");
  while (!bytes.empty()) {
    ssize_t n = ::write(descriptor_, bytes.data(), std::min(bytes.size(), std::size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_to_write(shown_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void AtomicFile::commit(Durability durability) {
  check_internal(descriptor_ >= 0, "a file is committed twice");
  // A pipe or device knows no fsync and says EINVAL.
  if (durability == Durability::kDurable && ::fsync(descriptor_) != 0 && !temporary_.empty()) {
    int error = errno;
    close_and_remove();
    fail_to_write(shown_, error);
  }
  // The lock must hold until the file has its name. What could still go wrong in close() has been seen by
  // fsync.
  int error = 0;
  if (!temporary_.empty() && ::rename(temporary_.c_str(), target_.c_str()) != 0) error = errno;
  if (error != 0) {
    close_and_remove();
    fail_to_write(shown_, error);
  }
  error = ::close(std::exchange(descriptor_, -1)) == 0 ? 0 : errno;
  if (error != 0 && temporary_.empty()) fail_to_write(shown_, error);
}

std::size_t remove_abandoned_temporaries(const fs::path& folder) {
  std::size_t removed = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (!name.starts_with(kTemporaryPrefix) || !name.ends_with(kTemporarySuffix)) continue;
    Descriptor descriptor(::open(it->path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
    struct stat info {};
    if (descriptor.get() < 0 || ::fstat(descriptor.get(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (::flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0) continue;
    if (::unlink(it->path().c_str()) == 0) ++removed;
  }
  return removed;
}

}  // namespace tessera
