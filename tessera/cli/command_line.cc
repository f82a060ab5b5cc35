#include "tessera/cli/command_line.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string_view>

#include "tessera/base/quote.h"

namespace tessera::cli {
namespace {

template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    std::size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

template <typename... Args>
[[noreturn]] void usage_error(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

double parse_finite(std::string_view text, const std::string& option, const std::string& all) {
  std::optional<double> value = parse_number<double>(text);
  if (!value || !std::isfinite(*value)) {
    usage_error("{} {}: {} is no finite number", option, quote(all), quote(text));
  }
  return *value;
}

std::int64_t parse_integer(std::string_view text, const std::string& option, std::int64_t low,
                           std::int64_t high) {
  std::optional<std::int64_t> value = parse_number<std::int64_t>(text);
  if (!value || *value < low || *value > high) {
    usage_error("{} {}: it must be a whole number from {} to {}", option, quote(text), low, high);
  }
  return *value;
}

}  // namespace

CommandLine::CommandLine(std::string command, const std::string& description, const std::string& footer)
    : app_(description, std::move(command)) {
  app_.footer(footer);
  app_.get_formatter()->column_width(38);
}

void CommandLine::positional(const std::string& name, const std::string& help) {
  known_[name] = {app_.add_option(name, CLI::callback_t(), help)->type_name(""), name, true, false};
}

void CommandLine::option(const std::string& names, const std::string& value, const std::string& help,
                         bool repeatable) {
  CLI::Option* option = app_.add_option(names, CLI::callback_t(), help)
                            ->type_name(value)
                            ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  std::string shown = names;
  std::ranges::replace(shown, ',', '/');
  known_[option->get_lnames().at(0)] = {option, shown, true, repeatable};
  for (const std::string& name : option->get_lnames()) takes_value_["--" + name] = true;
  for (const std::string& name : option->get_snames()) takes_value_["-" + name] = true;
}

void CommandLine::flag(const std::string& name, const std::string& help) {
  CLI::Option* option = app_.add_flag(name)->description(help);
  known_[option->get_lnames().at(0)] = {option, name, false, false};
}

// CLI11 reads the next argument as the value where "--name=" has none.
std::vector<std::string> CommandLine::with_empty_values_apart(
    const std::vector<std::string>& arguments) const {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    out.push_back(argument);
    if (takes_value_.contains(argument)) {
      if (i + 1 < arguments.size()) out.push_back(arguments[++i]);
    } else if (argument.ends_with('=') && takes_value_.contains(argument.substr(0, argument.size() - 1))) {
      out.back().pop_back();
      out.emplace_back();
    }
  }
  return out;
}

bool CommandLine::parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> reversed = with_empty_values_apart(arguments);
  std::ranges::reverse(reversed);
  try {
    app_.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app_.help().c_str(), stdout);
    return false;
  } catch (const CLI::ArgumentMismatch&) {
    // Only an option at the very end can lack its value.
    std::string last = arguments.empty() ? "" : arguments.back();
    usage_error("{} needs a value", quote(last));
  } catch (const CLI::ExtrasError&) {
    std::vector<std::string> extras = app_.remaining();
    std::string_view kind =
        !extras.empty() && extras[0].starts_with('-') ? "unknown option" : "unexpected argument";
    usage_error("{} {}", kind, quote(extras.empty() ? "" : extras[0]));
  } catch (const CLI::ParseError& e) {
    throw UsageError(e.what());
  }
  for (const auto& [name, entry] : known_) {
    if (!entry.repeatable && entry.takes_value && entry.option->results().size() > 1) {
      usage_error("{} is given {} times", entry.shown, entry.option->results().size());
    }
  }
  return true;
}

const CommandLine::Known& CommandLine::known(const std::string& name) const { return known_.at(name); }

const std::vector<std::string>& CommandLine::values(const std::string& name) const {
  return known(name).option->results();
}

std::optional<std::vector<std::string>> CommandLine::optional_values(const std::string& name) const {
  if (!given(name)) return std::nullopt;
  return values(name);
}

std::optional<std::string> CommandLine::text(const std::string& name) const {
  if (!given(name)) return std::nullopt;
  return values(name).back();
}

std::optional<std::string> CommandLine::choice(const std::string& name,
                                               const std::vector<std::string>& choices) const {
  std::optional<std::string> value = text(name);
  if (value && std::ranges::find(choices, *value) == choices.end()) {
    usage_error("{} {}: it must be one of {}", known(name).shown, quote(*value), fmt::join(choices, ", "));
  }
  return value;
}

std::optional<std::int64_t> CommandLine::integer(const std::string& name, std::int64_t low,
                                                 std::int64_t high) const {
  std::optional<std::string> value = text(name);
  if (!value) return std::nullopt;
  return parse_integer(*value, known(name).shown, low, high);
}

std::optional<int> CommandLine::small_integer(const std::string& name, int low, int high) const {
  std::optional<std::int64_t> value = integer(name, low, high);
  if (!value) return std::nullopt;
  return static_cast<int>(*value);
}

std::optional<double> CommandLine::number(const std::string& name) const {
  std::optional<std::string> value = text(name);
  if (!value) return std::nullopt;
  return parse_finite(*value, known(name).shown, *value);
}

std::optional<std::vector<double>> CommandLine::numbers(const std::string& name) const {
  std::optional<std::string> value = text(name);
  if (!value) return std::nullopt;
  std::vector<double> out;
  for (std::string_view part : split_at_commas(*value)) {
    out.push_back(parse_finite(part, known(name).shown, *value));
  }
  return out;
}

std::optional<std::vector<int>> CommandLine::small_integers(const std::string& name) const {
  std::optional<std::string> value = text(name);
  if (!value) return std::nullopt;
  std::vector<int> out;
  for (std::string_view part : split_at_commas(*value)) {
    out.push_back(static_cast<int>(parse_integer(part, known(name).shown, 0, 1 << 20)));
  }
  return out;
}

std::vector<std::uint64_t> CommandLine::seeds(const std::string& name) const {
  std::vector<std::uint64_t> out;
  for (const std::string& value : values(name)) {
    std::optional<std::uint64_t> seed = parse_number<std::uint64_t>(value);
    if (!seed) {
      usage_error("{} {}: a seed is a whole number from 0 to {}", known(name).shown, quote(value),
                  std::numeric_limits<std::uint64_t>::max());
    }
    out.push_back(*seed);
  }
  return out;
}

}  // namespace tessera::cli
