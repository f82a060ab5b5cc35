#include "tessera/nn/config.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/base/error.h"

namespace tessera::nn {
namespace {

constexpr std::int64_t kLargestSize = std::int64_t{1} << 24;
constexpr std::int64_t kLargestCount = 1024;

bool is_size(const nlohmann::json& v) {
  return v.is_number_integer() && v.get<double>() >= 1 &&
         v.get<double>() <= static_cast<double>(kLargestSize);
}

}  // namespace

const nlohmann::json* Config::find(const char* key) const {
  auto it = json_.find(key);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

void Config::wrong(const char* key, std::string_view wants) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) fail(ErrorCode::kDataLoss, "{} lacks '{}', {}", what_, key, wants);
  fail(ErrorCode::kDataLoss, "{}: '{}' is {}; it must be {}", what_, key, value->dump().substr(0, 60), wants);
}

std::int64_t Config::size(const char* key, std::optional<std::int64_t> fallback) const {
  const nlohmann::json* v = find(key);
  if (v == nullptr && fallback) return *fallback;
  if (v == nullptr || !is_size(*v)) wrong(key, "a whole number from 1 to 2^24");
  return v->get<std::int64_t>();
}

std::int64_t Config::count(const char* key, std::optional<std::int64_t> fallback) const {
  std::int64_t n = size(key, fallback);
  if (n > kLargestCount) wrong(key, "a whole number from 1 to 1024");
  return n;
}

std::int64_t Config::integer(const char* key, std::optional<std::int64_t> fallback) const {
  const nlohmann::json* v = find(key);
  if (v == nullptr && fallback) return *fallback;
  if (v == nullptr || !v->is_number_integer()) wrong(key, "a whole number");
  return v->get<std::int64_t>();
}

double Config::number(const char* key, std::optional<double> fallback) const {
  const nlohmann::json* v = find(key);
  if (v == nullptr && fallback) return *fallback;
  if (v == nullptr || !v->is_number() || !std::isfinite(v->get<double>())) wrong(key, "a number");
  return v->get<double>();
}

bool Config::flag(const char* key, std::optional<bool> fallback) const {
  const nlohmann::json* v = find(key);
  if (v == nullptr && fallback) return *fallback;
  if (v == nullptr || !v->is_boolean()) wrong(key, "true or false");
  return v->get<bool>();
}

std::string Config::text(const char* key, std::optional<std::string> fallback) const {
  const nlohmann::json* v = find(key);
  if (v == nullptr && fallback) return *fallback;
  if (v == nullptr || !v->is_string()) wrong(key, "a text");
  return v->get<std::string>();
}

std::vector<std::int64_t> Config::sizes(const char* key,
                                        std::optional<std::vector<std::int64_t>> fallback) const {
  const nlohmann::json* v = find(key);
  if (v == nullptr && fallback) return *fallback;
  constexpr std::string_view kWants = "a list of whole numbers from 1 to 2^24";
  if (v == nullptr || !v->is_array() || v->empty()) wrong(key, kWants);
  for (const auto& item : *v) {
    if (!is_size(item)) wrong(key, kWants);
  }
  return v->get<std::vector<std::int64_t>>();
}

std::vector<std::int64_t> Config::indices(const char* key, std::int64_t end,
                                          std::optional<std::vector<std::int64_t>> fallback) const {
  const nlohmann::json* v = find(key);
  if (v == nullptr && fallback) return *fallback;
  std::string wants = fmt::format("a list of whole numbers from 0 to {}", end - 1);
  if (v == nullptr || !v->is_array()) wrong(key, wants);
  std::vector<std::int64_t> out;
  for (const auto& item : *v) {
    if (!item.is_number_integer() || item < 0 || item >= end) wrong(key, wants);
    out.push_back(item.get<std::int64_t>());
  }
  return out;
}

Config Config::object(const char* key) const {
  const nlohmann::json* v = find(key);
  if (v == nullptr || !v->is_object()) wrong(key, "an object");
  return {*v, what_ + ": " + key};
}

void Config::refuse_flag(const char* key) const {
  if (flag(key, false)) fail(ErrorCode::kUnimplemented, "{}: '{}' is not supported", what_, key);
}

}  // namespace tessera::nn
