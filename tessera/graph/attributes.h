#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/base/error.h"

namespace tessera::graph {

using Attribute = std::variant<bool, std::int64_t, double, std::vector<std::int64_t>, std::string, DType>;

// The constants of an operation: part of its fingerprint, so a number that changes between calls must be an
// operand.
class Attributes {
 public:
  // Names are literals: only the view is kept. Their order is part of the fingerprint.
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string_view, Attribute>> items) : items_(items) {}

  template <typename T>
  const T& get(std::string_view name) const {
    for (const auto& [key, value] : items_) {
      if (key == name) return std::get<T>(value);
    }
    fail(ErrorCode::kInternal, "internal error: an operation lacks its attribute '{}'", name);
  }
  const std::vector<std::pair<std::string_view, Attribute>>& items() const { return items_; }

 private:
  std::vector<std::pair<std::string_view, Attribute>> items_;
};

}  // namespace tessera::graph
