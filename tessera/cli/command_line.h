#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace tessera::cli {

// A command line that cannot be obeyed: exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The options of one subcommand. Values are kept as the texts that were given, whatever they look like
// (empty, beginning with a dash, in brackets), and read by type afterwards, so that every complaint has one
// form. Readers throw UsageError, naming the option.
class CommandLine {
 public:
  // `command` as in "tessera generate"; `footer` (examples) ends the help text.
  CommandLine(std::string command, const std::string& description, const std::string& footer);

  void positional(const std::string& name, const std::string& help);
  // `names` as in "-p,--prompt"; the option is looked up by its long name, without dashes.
  void option(const std::string& names, const std::string& value, const std::string& help,
              bool repeatable = false);
  void flag(const std::string& name, const std::string& help);

  // False if help was asked for; it has been printed then.
  bool parse(const std::vector<std::string>& arguments);

  bool given(const std::string& name) const { return !values(name).empty(); }
  // All values, in order.
  const std::vector<std::string>& values(const std::string& name) const;
  std::optional<std::vector<std::string>> optional_values(const std::string& name) const;
  std::optional<std::string> text(const std::string& name) const;
  // Throws unless the value is one of `choices`.
  std::optional<std::string> choice(const std::string& name, const std::vector<std::string>& choices) const;
  std::optional<std::int64_t> integer(const std::string& name, std::int64_t low, std::int64_t high) const;
  std::optional<int> small_integer(const std::string& name, int low, int high) const;
  // A finite number.
  std::optional<double> number(const std::string& name) const;
  // Comma-separated.
  std::optional<std::vector<double>> numbers(const std::string& name) const;
  std::optional<std::vector<int>> small_integers(const std::string& name) const;
  // Every value as a seed, 0 to 2^64 - 1.
  std::vector<std::uint64_t> seeds(const std::string& name) const;

 private:
  struct Known {
    CLI::Option* option = nullptr;
    std::string shown;  // as in "-p/--prompt"
    bool takes_value = true;
    bool repeatable = false;
  };
  const Known& known(const std::string& name) const;
  std::vector<std::string> with_empty_values_apart(const std::vector<std::string>& arguments) const;

  CLI::App app_;
  std::map<std::string, Known> known_;       // by long name or positional's name
  std::map<std::string, bool> takes_value_;  // by "-p" and "--prompt"
};

}  // namespace tessera::cli
