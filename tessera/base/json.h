#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tessera {

// Reads JSON text as found in checkpoints. Throws kDataLoss, beginning with `what`, for text that is not JSON
// or not UTF-8, for a key given twice in one object and for nesting deeper than max_depth.
nlohmann::json parse_json(std::string_view text, const std::string& what, int max_depth = 64);

// Reads a JSON file of at most 256 MiB whose outermost value is an object. Throws kNotFound, kUnavailable or
// kDataLoss, naming the file.
nlohmann::json read_json_object(const std::filesystem::path& path);

}  // namespace tessera
