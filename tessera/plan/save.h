#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "tessera/plan/paper.h"

// Keeps planned programs where a machine of the topology looks for compiled ones (TESSERA_CACHE_DIR). Its key
// of a program is foreseen from this machine's libtpu and environment (environment_key); that what is found
// there loads has not been tried, for want of a chip.
namespace tessera::plan {

struct SavedPrograms {
  std::int64_t count = 0, bytes = 0;
};

// Throws kUnavailable if the folder cannot be made or written, kInvalidArgument if it is a file; leaves
// nothing behind.
void check_writable(const std::filesystem::path& folder);

// Throws kUnavailable, with the reason, if they cannot all be written; then none of them is left.
SavedPrograms save(const std::vector<KeyedProgram>& programs, const std::filesystem::path& folder);

}  // namespace tessera::plan
