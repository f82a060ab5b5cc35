#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::nn {

// Reads a component's config. Every getter throws kDataLoss, naming component and key, for a value of another
// kind; keys that are absent or null give the fallback, or kDataLoss where there is none.
class Config {
 public:
  // `what` names the component in messages, as in "transformer/config.json". The JSON object must outlive
  // this.
  Config(const nlohmann::json& json, std::string what) : json_(json), what_(std::move(what)) {}

  // A number from 1 to a bound that no published model comes near.
  std::int64_t size(const char* key, std::optional<std::int64_t> fallback = std::nullopt) const;
  // How often a part is repeated: from 1 to 1024. A model is built before its file is compared with it, so a
  // damaged number must not build millions of layers.
  std::int64_t count(const char* key, std::optional<std::int64_t> fallback = std::nullopt) const;
  std::int64_t integer(const char* key, std::optional<std::int64_t> fallback = std::nullopt) const;
  double number(const char* key, std::optional<double> fallback = std::nullopt) const;
  bool flag(const char* key, std::optional<bool> fallback = std::nullopt) const;
  std::string text(const char* key, std::optional<std::string> fallback = std::nullopt) const;
  std::vector<std::int64_t> sizes(const char* key,
                                  std::optional<std::vector<std::int64_t>> fallback = std::nullopt) const;
  // A list, maybe empty, of whole numbers from 0 to below `end`.
  std::vector<std::int64_t> indices(const char* key, std::int64_t end,
                                    std::optional<std::vector<std::int64_t>> fallback = std::nullopt) const;
  // Whether the key is there and not null.
  bool has(const char* key) const { return find(key) != nullptr; }
  // The object of that key, which is another config.
  Config object(const char* key) const;
  // Throws kUnimplemented if the flag is set, kDataLoss if it is no flag.
  void refuse_flag(const char* key) const;
  const std::string& what() const { return what_; }

 private:
  const nlohmann::json* find(const char* key) const;
  [[noreturn]] void wrong(const char* key, std::string_view wants) const;
  const nlohmann::json& json_;
  std::string what_;
};

}  // namespace tessera::nn
