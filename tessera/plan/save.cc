#include "tessera/plan/save.h"

#include <limits>
#include <system_error>

#include "tessera/base/error.h"
#include "tessera/base/file.h"
#include "tessera/runtime/disk_cache.h"

namespace tessera::plan {
namespace {

namespace fs = std::filesystem;

DiskCacheOptions options_for(const fs::path& folder) {
  // None of what is there has to go.
  return {.folder = folder, .size_limit = std::numeric_limits<std::int64_t>::max(), .strict = true};
}

}  // namespace

void check_writable(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error))
    invalid_argument("{}: programs are saved in a folder, and this is a file", folder.string());
  bool made = fs::create_directory(folder, error);
  if (error)
    fail(ErrorCode::kUnavailable, "{}: the folder cannot be made: {}", folder.string(), error.message());
  try {
    AtomicFile probe(folder / "probe");
  } catch (const Error&) {
    if (made) fs::remove(folder, error);
    throw;
  }
  if (made) fs::remove(folder, error);
}

SavedPrograms save(const std::vector<KeyedProgram>& programs, const fs::path& folder) {
  DiskCache cache(options_for(folder));
  SavedPrograms saved;
  try {
    for (const KeyedProgram& program : programs) {
      std::string bytes = program.executable->serialize();
      cache.store(program.key, bytes);
      ++saved.count;
      saved.bytes += static_cast<std::int64_t>(bytes.size());
    }
  } catch (...) {
    for (const KeyedProgram& program : programs) cache.remove(program.key);
    throw;
  }
  return saved;
}

}  // namespace tessera::plan
