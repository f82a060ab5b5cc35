#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct DiskCacheOptions {
  static constexpr std::int64_t kDefaultSizeLimit = std::int64_t{4} << 30;
  std::filesystem::path folder;
  std::int64_t size_limit = kDefaultSizeLimit;  // bytes of all entries together
  bool strict = false;                          // what cannot be stored is an error
};

// Where the environment wants compiled programs to be kept; nullopt where it wants none.
//
// The folder is TESSERA_CACHE_DIR, else $XDG_CACHE_HOME/tessera, else ~/.cache/tessera; none if
// TESSERA_CACHE_DIR is set and empty, or none of them is set. The limit is TESSERA_CACHE_LIMIT (see
// parse_bytes); 0 is none too. Throws kInvalidArgument for a limit that cannot be read and for a
// TESSERA_CACHE_DIR that is a file; where the default folder is a file, that is a warning and nullopt.
std::optional<DiskCacheOptions> disk_cache_options_from_environment();

// Compiled programs in a folder, for later processes. Each entry is a file that holds its whole key and a
// checksum, so that one which is truncated, damaged or another's is noticed. Several threads and processes
// may use one folder.
//
// Nothing that happens to the folder while programs run is an error: an entry that cannot be used is a
// warning, is removed if that is possible, and counts as missing; a folder that cannot be written (read-only,
// full) is one warning, and nothing is stored from then on. With `strict` those two are errors of the store
// (kUnavailable). Other files in the folder are left alone.
class DiskCache {
 public:
  struct Entry {
    std::filesystem::path file;
    std::string key;  // empty if the file's head cannot be read
    std::int64_t bytes = 0;
    std::filesystem::file_time_type last_used;
  };
  struct Stats {
    std::int64_t entries = 0, bytes = 0;
  };

  // The folder is made when it is first needed. Throws kInvalidArgument if it is a file.
  explicit DiskCache(DiskCacheOptions options);
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  // What was stored under `key`, which is the text of everything that the bytes depend on. Marks it as used.
  std::optional<std::string> load(const std::string& key);
  // Keeps the bytes. If all entries together then exceed the limit, those that were not used for longest go.
  void store(const std::string& key, std::string_view bytes);
  // Removes the entry if there is one.
  void remove(const std::string& key);
  // Warns that the entry's content was refused (by a plugin, say), with the reason, and removes it.
  void forget(const std::string& key, std::string_view reason);

  // What is in the folder, most recently used first; files of other kinds are not listed. A missing or
  // unreadable folder is empty.
  std::vector<Entry> entries() const;
  Stats stats() const;
  // Removes all entries and what killed processes left behind; says what was removed. Throws kUnavailable if
  // an entry cannot be removed.
  Stats clear();

  const DiskCacheOptions& options() const { return options_; }

 private:
  std::filesystem::path file_of(const std::string& key) const;
  void warn_and_remove(const std::filesystem::path& file, std::string_view reason);
  void stop_storing(std::string_view reason);
  void added(std::int64_t bytes);
  void evict();

  DiskCacheOptions options_;
  std::atomic<bool> stores_ = true;  // until the folder turns out not to take anything
  std::mutex mutex_;                 // guards the two below
  std::int64_t estimate_ = 0;        // bytes in the folder, but for what other processes did since
  int until_count_ = 0;              // stores until the folder is counted anew
};

// The key of a program: what its text is compiled for (environment_key), the text itself (as its hash) and
// the serialised compile options.
std::string program_key(std::string_view environment, std::string_view program_text,
                        std::string_view compile_options);

}  // namespace tessera
