#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/checkpoint/host_block.h"

// How the weights of a component are shared out over the ranks of a mesh (Megatron's scheme, Shoeybi et al.
// 2019): a colwise layer gives each rank some of the outputs, the rowwise layer after it takes them as its
// inputs and adds up what the ranks get, so that a pair of them costs one all-reduce.
namespace tessera::nn {

// A stretch of an axis that the ranks share out evenly. Its `units` (heads; or single elements) stay whole.
struct PackedPart {
  std::int64_t width = 0;
  std::int64_t units = 0;
};

struct TensorParallelStyle {
  enum class Kind {
    kColwise,  // the outputs are shared out: rows of a linear layer's weight [out, in], and its bias; columns
               // of an embedding's table
    kRowwise,  // the inputs are: columns of the weight; the ranks' results are added, then the bias
  };
  Kind kind = Kind::kColwise;
  // Of the axis, in order; each is shared out by itself.
  std::vector<PackedPart> parts;
  // Units fewer than ranks are repeated: of 2 key-value heads each of 8 ranks has one.
  bool repeat = false;
};

// The whole axis, in that many units (heads), or by single elements.
TensorParallelStyle colwise(std::int64_t width, std::int64_t units = 0);
TensorParallelStyle rowwise(std::int64_t width, std::int64_t units = 0);
// Several stretches in one tensor, as where gate and value of an activation are one product.
TensorParallelStyle packed_colwise(std::vector<PackedPart> parts);
TensorParallelStyle packed_rowwise(std::vector<PackedPart> parts);
// Key or value heads that several queries share.
TensorParallelStyle repeated_colwise(std::int64_t width, std::int64_t units);

// Layers of a model by the end of their names, as in "transformer_blocks.*.attn.to_q" (what comes before
// differs from file to file); a `*`, at most one, stands for a number. Layers that are not named are
// replicated.
struct TensorParallelPlan {
  struct Entry {
    std::string pattern;
    TensorParallelStyle style;
  };
  std::vector<Entry> entries;

  void add(std::string pattern, TensorParallelStyle style) {
    entries.push_back({std::move(pattern), std::move(style)});
  }
};

// Whether the pattern of a plan means that layer.
bool matches(std::string_view pattern, std::string_view path);

using checkpoint::Stretch;

// Why `ranks` cannot share the style's parts of an axis ("24 units do not divide by 7"); empty if they can.
std::string misfit(const TensorParallelStyle& style, int ranks);
// What rank `rank` of `ranks` has of the axis, in order.
std::vector<Stretch> stretches(const TensorParallelStyle& style, int rank, int ranks);
// How much that is: the same for each rank.
std::int64_t local_width(const TensorParallelStyle& style, int ranks);

}  // namespace tessera::nn
