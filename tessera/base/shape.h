#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace tessera {

// The extents of a tensor, outermost first; at most kMaxRank of them, held in place (copying never
// allocates). Extents may be zero. An empty shape is a scalar.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  // Throws kInvalidArgument for a negative extent, more than kMaxRank extents, or a product beyond 2^62.
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  // Extent of axis i; a negative i counts from the end.
  std::int64_t operator[](int i) const { return dims_[static_cast<std::size_t>(i < 0 ? i + rank_ : i)]; }
  void set(int i, std::int64_t extent) { dims_[static_cast<std::size_t>(i < 0 ? i + rank_ : i)] = extent; }
  void push_back(std::int64_t extent);
  std::int64_t elements() const;
  std::span<const std::int64_t> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }
  auto begin() const { return dims().begin(); }
  auto end() const { return dims().end(); }

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// "[2, 3, 4]"; "[]" for a scalar.
std::string to_string(const Shape& shape);

// The shape that numpy-style broadcasting of a and b gives. Throws kInvalidArgument, naming both, if there is
// none.
Shape broadcast_shapes(const Shape& a, const Shape& b);

}  // namespace tessera
