#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "tessera/checkpoint/model_folder.h"

// What the subcommands share.
namespace tessera::cli {

// Thrown for what the command line asks and cannot be: exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Adds a subcommand; its callback does the work when the command line has been read.
void add_generate(CLI::App& app);
void add_info(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_devices(CLI::App& app);

// The checkpoint that is named, or the demonstration checkpoint: models/demo beside the program's source, or
// beside the program.
checkpoint::ModelFolder open_model(const std::string& model);

// One JSON object on standard output, invalid UTF-8 replaced. Throws kUnavailable if it cannot be written.
void print_json(const nlohmann::json& json);
// Text on standard output, likewise.
void print_text(const std::string& text);
// A line on standard error.
void note(const std::string& line);

// Sends the library's warnings to standard error.
void install_log();

}  // namespace tessera::cli
