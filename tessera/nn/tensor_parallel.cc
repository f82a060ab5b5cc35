#include "tessera/nn/tensor_parallel.h"

#include <fmt/format.h>

#include <cctype>
#include <utility>

namespace tessera::nn {
namespace {

using Kind = TensorParallelStyle::Kind;

std::vector<PackedPart> whole(std::int64_t width, std::int64_t units) {
  return {{width, units == 0 ? width : units}};
}

// Whether each of several ranks has the same unit.
bool repeats(const TensorParallelStyle& style, const PackedPart& part, int ranks) {
  return style.repeat && part.units < ranks;
}

}  // namespace

TensorParallelStyle colwise(std::int64_t width, std::int64_t units) {
  return {Kind::kColwise, whole(width, units)};
}

TensorParallelStyle rowwise(std::int64_t width, std::int64_t units) {
  return {Kind::kRowwise, whole(width, units)};
}

TensorParallelStyle packed_colwise(std::vector<PackedPart> parts) {
  return {Kind::kColwise, std::move(parts)};
}

TensorParallelStyle packed_rowwise(std::vector<PackedPart> parts) {
  return {Kind::kRowwise, std::move(parts)};
}

TensorParallelStyle repeated_colwise(std::int64_t width, std::int64_t units) {
  return {Kind::kColwise, whole(width, units), true};
}

bool matches(std::string_view pattern, std::string_view path) {
  std::size_t star = pattern.find('*');
  std::string_view head = pattern.substr(0, star);
  if (star != std::string_view::npos) {
    std::string_view tail = pattern.substr(star + 1);
    if (!path.ends_with(tail)) return false;
    path.remove_suffix(tail.size());
    std::size_t digits = 0;
    while (digits < path.size() && std::isdigit(static_cast<unsigned char>(path[path.size() - 1 - digits])))
      ++digits;
    if (digits == 0) return false;
    path.remove_suffix(digits);
  }
  if (!path.ends_with(head)) return false;
  path.remove_suffix(head.size());
  return path.empty() || path.ends_with('.');
}

std::string misfit(const TensorParallelStyle& style, int ranks) {
  for (const PackedPart& part : style.parts) {
    bool fits = repeats(style, part, ranks) ? ranks % part.units == 0 : part.units % ranks == 0;
    if (fits) continue;
    return part.units == part.width ? fmt::format("a width of {}", part.width)
                                    : fmt::format("{} heads", part.units);
  }
  return {};
}

std::vector<Stretch> stretches(const TensorParallelStyle& style, int rank, int ranks) {
  std::vector<Stretch> out;
  std::int64_t begin = 0;
  for (const PackedPart& part : style.parts) {
    std::int64_t unit = part.width / part.units;
    std::int64_t count = repeats(style, part, ranks) ? 1 : part.units / ranks;
    std::int64_t first = repeats(style, part, ranks) ? rank * part.units / ranks : rank * count;
    out.push_back({begin + first * unit, begin + (first + count) * unit});
    begin += part.width;
  }
  return out;
}

std::int64_t local_width(const TensorParallelStyle& style, int ranks) {
  std::int64_t out = 0;
  for (const Stretch& s : stretches(style, 0, ranks)) out += s.end - s.begin;
  return out;
}

}  // namespace tessera::nn
