#include "tessera/base/env.h"

#include <cmath>
#include <cstdlib>

#include "tessera/base/error.h"

namespace tessera {

std::optional<std::string> env(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<bool> env_flag(const char* name) {
  auto value = env(name);
  if (!value) return std::nullopt;
  if (*value == "1" || *value == "true" || *value == "yes" || *value == "on") return true;
  if (*value == "0" || *value == "false" || *value == "no" || *value == "off") return false;
  invalid_argument("{}={}: expected 1 or 0 (or true/false, yes/no, on/off)", name, *value);
}

std::int64_t parse_bytes(const std::string& text, const std::string& what) {
  char* end = nullptr;
  double number = std::strtod(text.c_str(), &end);
  std::string unit(end);
  bool read = end != text.c_str() && std::isfinite(number) && number >= 0;
  double scale = 1;
  if (!unit.empty()) {
    auto power = std::string("KMGT").find(static_cast<char>(std::toupper(unit[0])));
    std::string rest = unit.substr(1);
    if (power == std::string::npos) {
      read = read && unit == "B";
    } else if (rest.empty() || rest == "iB" || rest == "i") {
      scale = std::pow(1024.0, static_cast<double>(power + 1));
    } else {
      read = read && rest == "B";
      scale = std::pow(1000.0, static_cast<double>(power + 1));
    }
  }
  if (!read || number * scale > 9e18) {
    invalid_argument("{}: '{}' is no size; write it as 31GiB, 512MB or a number of bytes", what, text);
  }
  return static_cast<std::int64_t>(number * scale);
}

std::string format_bytes(std::int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace tessera
