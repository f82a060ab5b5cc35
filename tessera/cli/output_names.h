#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera::cli {

// The files for `count` pictures from what -o says. It may hold one %d (or %3d, %03d): the picture's number
// from 0; %% is a percent sign. Without one, -0, -1, ... is put before the ending where there are several
// pictures. Throws UsageError for another conversion, a second %d, no file name, or the ending of a format
// other than PNG.
std::vector<std::filesystem::path> output_names(const std::string& pattern, std::size_t count);

// Throws, before any work, what writing the file would throw: UsageError never, kNotFound for a missing
// folder, kUnavailable for one that cannot be written. Leaves nothing behind.
void check_writable(const std::filesystem::path& file);

// The same for a folder that would be made, with those above it, if it is missing.
void check_folder(const std::filesystem::path& folder);

}  // namespace tessera::cli
