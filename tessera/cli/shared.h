#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/checkpoint/model_folder.h"

// What subcommands share.
namespace tessera::cli {

// The checkpoint that was named: a folder or a Hub id. Without a name the demo checkpoint, looked for beside
// the program, above its build folder and where it was built.
checkpoint::ModelFolder open_model(const std::optional<std::string>& name);

// Writes text to standard output. Throws kUnavailable if that cannot be done (a closed pipe, a full disk).
void print(std::string_view text);
void print_json(const nlohmann::ordered_json& json);

// 1234567 as "1,234,567".
std::string with_commas(std::int64_t n);

}  // namespace tessera::cli
