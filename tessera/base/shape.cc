#include "tessera/base/shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera {

Shape::Shape(std::span<const std::int64_t> dims) {
  if (dims.size() > kMaxRank)
    invalid_argument("a shape has at most {} axes; {} were given", kMaxRank, dims.size());
  std::int64_t product = 1;
  for (std::int64_t d : dims) {
    if (d < 0) invalid_argument("a shape with the negative extent {}", d);
    if (d > 0 && product > (std::int64_t{1} << 62) / d)
      invalid_argument("a shape with more than 2^62 elements");
    product *= std::max<std::int64_t>(d, 1);
    dims_[static_cast<std::size_t>(rank_++)] = d;
  }
}

void Shape::push_back(std::int64_t extent) {
  if (rank_ == kMaxRank) invalid_argument("a shape has at most {} axes", kMaxRank);
  dims_[static_cast<std::size_t>(rank_++)] = extent;
}

std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  for (std::int64_t d : dims()) product *= d;
  return product;
}

bool operator==(const Shape& a, const Shape& b) { return std::ranges::equal(a.dims(), b.dims()); }

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape.dims(), ", ")); }

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  Shape out;
  int rank = std::max(a.rank(), b.rank());
  for (int i = 0; i < rank; ++i) {
    int ia = i - (rank - a.rank()), ib = i - (rank - b.rank());
    std::int64_t da = ia < 0 ? 1 : a[ia], db = ib < 0 ? 1 : b[ib];
    if (da != db && da != 1 && db != 1) {
      invalid_argument("shapes {} and {} do not broadcast", to_string(a), to_string(b));
    }
    out.push_back(da == 1 ? db : da);
  }
  return out;
}

}  // namespace tessera
