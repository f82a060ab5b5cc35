#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tessera/text/byte_level_bpe.h"

// The vocabulary and merges of a byte-pair encoding, in the forms that checkpoints have them. All throw
// kDataLoss, beginning with `what` (or the file's name), for what is damaged.
namespace tessera::text {

using Merges = std::vector<std::pair<std::string, std::string>>;

// {"piece": id, ...}
Vocabulary read_vocabulary(const nlohmann::json& json, const std::string& what);
// merges.txt: a line a merge, after a line "#version...".
Merges read_merges_file(const std::filesystem::path& path);
// ["a b", ...] or [["a", "b"], ...]
Merges read_merges_json(const nlohmann::json& json, const std::string& what);

}  // namespace tessera::text
