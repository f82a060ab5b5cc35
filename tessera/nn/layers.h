#pragma once

#include <memory>
#include <string>

#include "tessera/graph/node.h"
#include "tessera/nn/parameter.h"

// The layers that models are made of. Each is built from its sizes and a scope, and names itself in the
// errors of the operations that it records.
namespace tessera::nn {

// Names a layer's place for error messages while one of its calls is being recorded.
class Located {
 public:
  explicit Located(const Scope& scope) : where_(std::make_shared<const std::string>(scope.path())) {}
  // The path, as Module::block wants it.
  const std::shared_ptr<const std::string>& where() const { return where_; }

 protected:
  graph::ScopedLocation here() const { return graph::ScopedLocation(where_); }

 private:
  std::shared_ptr<const std::string> where_;
};

// x [..., in] -> [..., out]. Weight [out, in], bias [out]. Where the plan shares the layer out, x or the
// result is a rank's part of that.
class Linear : Located {
 public:
  Linear(const Scope& scope, std::int64_t in, std::int64_t out, bool bias = true);
  Tensor operator()(const Tensor& x) const;

 private:
  Parameter weight_, bias_;
  bool adds_up_ = false;  // the ranks' results are parts of a sum
};

// x [N, in, H, W] -> [N, out, H', W']. Weight [out, in, k, k], bias [out].
class Conv2d : Located {
 public:
  Conv2d(const Scope& scope, std::int64_t in, std::int64_t out, int kernel, int stride, int padding);
  Tensor operator()(const Tensor& x) const;

 private:
  Parameter weight_, bias_;
  int stride_, padding_;
};

// i32 ids [...] -> [..., width]; a rank's part of the width where the plan shares the table out.
class Embedding : Located {
 public:
  Embedding(const Scope& scope, std::int64_t rows, std::int64_t width);
  Tensor operator()(const Tensor& ids) const;
  const Tensor& weight() const { return weight_.tensor(); }

 private:
  Parameter weight_;
};

// Over the last axis, with or without weight and bias.
class LayerNorm : Located {
 public:
  LayerNorm(const Scope& scope, std::int64_t width, double eps, bool affine = true);
  Tensor operator()(const Tensor& x) const;

 private:
  Parameter weight_, bias_;
  double eps_;
};

// Over the last axis.
class RmsNorm : Located {
 public:
  RmsNorm(const Scope& scope, std::int64_t width, double eps);
  Tensor operator()(const Tensor& x) const;
  using Located::where;
  const Tensor& weight() const { return weight_.tensor(); }
  double eps() const { return eps_; }

 private:
  Parameter weight_;
  double eps_;
};

// x [N, C, ...].
class GroupNorm : Located {
 public:
  GroupNorm(const Scope& scope, std::int64_t channels, int groups, double eps);
  Tensor operator()(const Tensor& x) const;

 private:
  Parameter weight_, bias_;
  int groups_;
  double eps_;
};

// [B, S, heads * D] -> [B, S, heads, D], however many heads a rank has, and back.
Tensor split_heads(const Tensor& x, std::int64_t head_dim);
Tensor merge_heads(const Tensor& x);

// The activation function of that name ("gelu", "gelu_new", "quick_gelu", "relu", "silu"). Throws
// kUnimplemented, listing them, for another.
using Activation = Tensor (*)(const Tensor&);
Activation activation(const std::string& name);

}  // namespace tessera::nn
