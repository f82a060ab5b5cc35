#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/error.h"

namespace tessera::bench {

// The command line of a benchmark: "--name value" pairs of known names, and texts without a name.
class Arguments {
 public:
  // `defaults` are the names there are. Throws kInvalidArgument for another, or one without a value.
  Arguments(int argc, char** argv, std::map<std::string, std::string> defaults)
      : values_(std::move(defaults)) {
    for (int i = 1; i < argc; ++i) {
      std::string text = argv[i];
      if (!text.starts_with("--")) {
        texts_.push_back(text);
        continue;
      }
      auto found = values_.find(text.substr(2));
      std::string names;
      for (const auto& [name, value] : values_) names += fmt::format(" --{} {}", name, value);
      if (found == values_.end() || i + 1 == argc)
        invalid_argument("'{}' is no option or has no value; options, with their defaults:{}", text, names);
      found->second = argv[++i];
    }
  }

  const std::vector<std::string>& texts() const { return texts_; }
  const std::string& text(const std::string& name) const { return values_.at(name); }
  // Throws kInvalidArgument unless the value is a whole number from 1.
  int count(const std::string& name) const {
    const std::string& text = values_.at(name);
    int value = 0;
    auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || end != text.data() + text.size() || value < 1)
      invalid_argument("--{} '{}' is no whole number from 1", name, text);
    return value;
  }

 private:
  std::map<std::string, std::string> values_;
  std::vector<std::string> texts_;
};

struct Times {
  double best = 0, median = 0;
};

// `seconds` is not empty.
inline Times times_of(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  return {seconds.front(), seconds[seconds.size() / 2]};
}

}  // namespace tessera::bench
