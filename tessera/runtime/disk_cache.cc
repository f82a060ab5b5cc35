#include "tessera/runtime/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tessera/base/env.h"
#include "tessera/base/error.h"
#include "tessera/base/file.h"
#include "tessera/base/log.h"
#include "tessera/base/quote.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little,
              "the head of an entry is written as it is in memory");

constexpr std::array<char, 8> kMagic{'t', 'e', 's', 's', 'p', 'r', 'o', 'g'};
constexpr std::uint32_t kFormatVersion = 1;
constexpr std::uint32_t kMaxKeyBytes = 1 << 20;
constexpr std::string_view kEnding = ".tessera-program";
constexpr std::size_t kHashDigits = 32;
constexpr int kStoresBetweenCounts = 64;

// What an entry begins with; the key and the payload follow.
struct Head {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kFormatVersion;
  std::uint32_t key_bytes = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t checksum_low = 0, checksum_high = 0;  // of key and payload
};
static_assert(sizeof(Head) == 40);

std::string hex(XXH128_hash_t hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

std::string hash_of(std::string_view text) { return hex(XXH3_128bits(text.data(), text.size())); }

std::string reason_of(int error) { return std::system_category().message(error); }

bool is_entry_name(std::string_view name) {
  return name.size() == kHashDigits + kEnding.size() && name.ends_with(kEnding) &&
         name.find_first_not_of("0123456789abcdef") == kHashDigits;
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// Why `file` is not the entry of `key`; nullptr if it is.
const char* fault_of(std::string_view file, const std::string& key) {
  Head head;
  if (file.size() < sizeof head) return "it is too short";
  std::memcpy(&head, file.data(), sizeof head);
  if (head.magic != kMagic) return "it is no file of Tessera's";
  if (head.version != kFormatVersion) return "it was written by another version";
  std::string_view rest = file.substr(sizeof head);
  if (head.key_bytes > rest.size() || head.payload_bytes != rest.size() - head.key_bytes)
    return "its length is wrong";
  XXH128_hash_t hash = XXH3_128bits(rest.data(), rest.size());
  if (hash.low64 != head.checksum_low || hash.high64 != head.checksum_high) return "its checksum is wrong";
  if (rest.substr(0, head.key_bytes) != key) return "it holds another program";
  return nullptr;
}

// The key in the head of a file; empty if that cannot be read.
std::string key_in(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  Head head;
  if (!file.read(reinterpret_cast<char*>(&head), sizeof head) || head.magic != kMagic ||
      head.version != kFormatVersion || head.key_bytes > kMaxKeyBytes)
    return "";
  std::string key(head.key_bytes, '\0');
  if (!file.read(key.data(), head.key_bytes)) return "";
  return key;
}

// Calls f(path, stat) for every entry file.
template <typename F>
void for_each_entry(const fs::path& folder, F&& f) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    struct stat info {};
    if (is_entry_name(it->path().filename().string()) && ::lstat(it->path().c_str(), &info) == 0 &&
        S_ISREG(info.st_mode))
      f(it->path(), info);
  }
}

fs::file_time_type time_of(const timespec& time) {
  auto since = std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  auto system = std::chrono::sys_time<std::chrono::nanoseconds>(since);
  return fs::file_time_type::clock::from_sys(system);
}

bool is_other_than_folder(const fs::path& path) {
  std::error_code ignored;
  fs::file_status status = fs::status(path, ignored);
  return fs::exists(status) && !fs::is_directory(status);
}

std::string not_a_folder(const fs::path& path) {
  return fmt::format(
      "the folder for compiled programs, {}, is a file; name a folder in TESSERA_CACHE_DIR, or "
      "set it empty to keep none",
      path.string());
}

}  // namespace

std::optional<DiskCacheOptions> disk_cache_options_from_environment() {
  DiskCacheOptions options;
  constexpr const char* kLimit = "TESSERA_CACHE_LIMIT";
  if (auto text = env(kLimit)) options.size_limit = parse_bytes(*text, kLimit);
  if (options.size_limit == 0) return std::nullopt;
  if (const char* named = std::getenv("TESSERA_CACHE_DIR")) {
    if (*named == '\0') return std::nullopt;
    options.folder = named;
    if (is_other_than_folder(options.folder)) invalid_argument("{}", not_a_folder(options.folder));
    return options;
  }
  auto xdg = env("XDG_CACHE_HOME"), home = env("HOME");
  if (xdg && fs::path(*xdg).is_absolute()) {  // the XDG specification: relative ones are ignored
    options.folder = fs::path(*xdg) / "tessera";
  } else if (home) {
    options.folder = fs::path(*home) / ".cache" / "tessera";
  } else {
    return std::nullopt;
  }
  if (is_other_than_folder(options.folder)) {
    log(LogLevel::kWarning, "{}", not_a_folder(options.folder));
    return std::nullopt;
  }
  return options;
}

DiskCache::DiskCache(DiskCacheOptions options) : options_(std::move(options)) {
  if (is_other_than_folder(options_.folder)) invalid_argument("{}", not_a_folder(options_.folder));
}

fs::path DiskCache::file_of(const std::string& key) const {
  return options_.folder / (hash_of(key) + std::string(kEnding));
}

void DiskCache::warn_and_remove(const fs::path& file, std::string_view reason) {
  log(LogLevel::kWarning, "{}: this kept program cannot be used ({}); it is compiled anew", file.string(),
      reason);
  ::unlink(file.c_str());
}

void DiskCache::remove(const std::string& key) { ::unlink(file_of(key).c_str()); }

void DiskCache::stop_storing(std::string_view reason) {
  if (options_.strict) fail(ErrorCode::kUnavailable, "a compiled program cannot be kept: {}", reason);
  if (stores_.exchange(false))
    log(LogLevel::kWarning, "compiled programs are not kept for the next time: {}", reason);
}

std::optional<std::string> DiskCache::load(const std::string& key) {
  fs::path file = file_of(key);
  try {
    // What is longer than all entries together may be is none of ours, and not worth the memory.
    std::string bytes = read_file(file, static_cast<std::size_t>(options_.size_limit));
    if (const char* fault = fault_of(bytes, key)) {
      warn_and_remove(file, fault);
      return std::nullopt;
    }
    ::utimensat(AT_FDCWD, file.c_str(), nullptr, 0);  // a read-only folder only loses the order of use
    bytes.erase(0, sizeof(Head) + key.size());
    return bytes;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) warn_and_remove(file, error.what());
  } catch (const std::bad_alloc&) {
    warn_and_remove(file, "it does not fit into memory");
  }
  return std::nullopt;
}

void DiskCache::store(const std::string& key, std::string_view bytes) {
  if (!stores_) return;
  check_internal(key.size() <= kMaxKeyBytes, "the key of a compiled program is too long");
  auto size = static_cast<std::int64_t>(sizeof(Head) + key.size() + bytes.size());
  if (size > options_.size_limit) {
    if (options_.strict) return stop_storing("it is larger than all together may be");
    log(LogLevel::kInfo, "a compiled program of {} is not kept: the limit (TESSERA_CACHE_LIMIT) is {}",
        format_bytes(size), format_bytes(options_.size_limit));
    return;
  }
  try {
    std::error_code error;
    if (!fs::is_directory(options_.folder, error)) {
      // Programs are run as they are found, so that nobody else may put any there.
      fs::create_directories(options_.folder.parent_path(), error);
      if (::mkdir(options_.folder.c_str(), 0700) != 0 && errno != EEXIST)
        return stop_storing(
            fmt::format("{}: cannot be made: {}", options_.folder.string(), reason_of(errno)));
    }
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, key.data(), key.size());
    XXH3_128bits_update(&state, bytes.data(), bytes.size());
    XXH128_hash_t hash = XXH3_128bits_digest(&state);
    Head head;
    head.key_bytes = static_cast<std::uint32_t>(key.size());
    head.payload_bytes = bytes.size();
    head.checksum_low = hash.low64;
    head.checksum_high = hash.high64;
    AtomicFile file(file_of(key));
    file.write(std::as_bytes(std::span(&head, 1)));
    file.write(bytes_of(key));
    file.write(bytes_of(bytes));
    file.commit(AtomicFile::Durability::kFast);
  } catch (const Error& error) {
    return stop_storing(error.what());
  }
  added(size);
}

void DiskCache::forget(const std::string& key, std::string_view reason) {
  warn_and_remove(file_of(key), quote(reason, 400));
}

void DiskCache::added(std::int64_t bytes) {
  std::lock_guard lock(mutex_);
  estimate_ += bytes;
  if (--until_count_ >= 0 && estimate_ <= options_.size_limit) return;
  until_count_ = kStoresBetweenCounts;
  remove_abandoned_temporaries(options_.folder);
  evict();
}

void DiskCache::evict() {
  struct File {
    fs::path path;
    fs::file_time_type used;
    std::int64_t bytes;
  };
  std::vector<File> files;
  std::int64_t total = 0;
  for_each_entry(options_.folder, [&](const fs::path& path, const struct stat& info) {
    files.push_back({path, time_of(info.st_mtim), info.st_size});
    total += info.st_size;
  });
  estimate_ = total;
  if (total <= options_.size_limit) return;
  // A little more than need be, so that the next stores do not count again.
  std::int64_t wanted = options_.size_limit - options_.size_limit / 10;
  std::ranges::sort(files, {}, &File::used);
  for (std::size_t i = 0; i + 1 < files.size() && estimate_ > wanted; ++i) {
    if (::unlink(files[i].path.c_str()) == 0 || errno == ENOENT) estimate_ -= files[i].bytes;
  }
}

std::vector<DiskCache::Entry> DiskCache::entries() const {
  std::vector<Entry> found;
  for_each_entry(options_.folder, [&](const fs::path& path, const struct stat& info) {
    found.push_back({path, key_in(path), info.st_size, time_of(info.st_mtim)});
  });
  std::ranges::sort(found, std::ranges::greater(), &Entry::last_used);
  return found;
}

DiskCache::Stats DiskCache::stats() const {
  Stats stats;
  for_each_entry(options_.folder, [&](const fs::path&, const struct stat& info) {
    ++stats.entries;
    stats.bytes += info.st_size;
  });
  return stats;
}

DiskCache::Stats DiskCache::clear() {
  std::lock_guard lock(mutex_);
  Stats removed;
  std::string fault;
  for_each_entry(options_.folder, [&](const fs::path& path, const struct stat& info) {
    if (::unlink(path.c_str()) == 0) {
      ++removed.entries;
      removed.bytes += info.st_size;
    } else if (errno != ENOENT && fault.empty()) {
      fault = fmt::format("{}: cannot be removed: {}", path.string(), reason_of(errno));
    }
  });
  remove_abandoned_temporaries(options_.folder);
  estimate_ = 0;
  if (!fault.empty()) fail(ErrorCode::kUnavailable, "{}", fault);
  return removed;
}

std::string program_key(std::string_view environment, std::string_view program_text,
                        std::string_view compile_options) {
  return fmt::format("program {} ({} bytes)\noptions {}\n{}", hash_of(program_text), program_text.size(),
                     hash_of(compile_options), environment);
}

}  // namespace tessera
