#include "tessera/nn/layers.h"

#include <map>

#include "tessera/base/error.h"
#include "tessera/ops/ops.h"

namespace tessera::nn {
namespace {

Tensor optional(const Parameter& parameter) { return parameter ? parameter.tensor() : Tensor(); }

}  // namespace

Linear::Linear(const Scope& scope, std::int64_t in, std::int64_t out, bool bias) : Located(scope) {
  const TensorParallelStyle* style = scope.style();
  adds_up_ = style != nullptr && style->kind == TensorParallelStyle::Kind::kRowwise;
  weight_ = scope.parameter("weight", {out, in}, style, adds_up_ ? 1 : 0);
  if (bias) bias_ = scope.parameter("bias", {out}, adds_up_ ? nullptr : style);
}

Tensor Linear::operator()(const Tensor& x) const {
  auto location = here();
  if (!adds_up_) return ops::linear(x, weight_.tensor(), optional(bias_));
  Tensor sum = ops::all_reduce(ops::linear(x, weight_.tensor(), {}));
  return bias_ ? ops::add(sum, bias_.tensor()) : sum;
}

Conv2d::Conv2d(const Scope& scope, std::int64_t in, std::int64_t out, int kernel, int stride, int padding)
    : Located(scope),
      weight_(scope.parameter("weight", {out, in, kernel, kernel})),
      bias_(scope.parameter("bias", {out})),
      stride_(stride),
      padding_(padding) {}

Tensor Conv2d::operator()(const Tensor& x) const {
  auto location = here();
  return ops::conv2d(x, weight_.tensor(), bias_.tensor(), stride_, padding_);
}

Embedding::Embedding(const Scope& scope, std::int64_t rows, std::int64_t width)
    : Located(scope), weight_(scope.parameter("weight", {rows, width}, scope.style(), 1)) {}

Tensor Embedding::operator()(const Tensor& ids) const {
  auto location = here();
  return ops::embedding(weight_.tensor(), ids);
}

LayerNorm::LayerNorm(const Scope& scope, std::int64_t width, double eps, bool affine)
    : Located(scope), eps_(eps) {
  if (affine) {
    weight_ = scope.parameter("weight", {width});
    bias_ = scope.parameter("bias", {width});
  }
}

Tensor LayerNorm::operator()(const Tensor& x) const {
  auto location = here();
  return ops::layer_norm(x, optional(weight_), optional(bias_), eps_);
}

RmsNorm::RmsNorm(const Scope& scope, std::int64_t width, double eps)
    : Located(scope), weight_(scope.parameter("weight", {width})), eps_(eps) {}

Tensor RmsNorm::operator()(const Tensor& x) const {
  auto location = here();
  return ops::rms_norm(x, weight_.tensor(), eps_);
}

GroupNorm::GroupNorm(const Scope& scope, std::int64_t channels, int groups, double eps)
    : Located(scope),
      weight_(scope.parameter("weight", {channels})),
      bias_(scope.parameter("bias", {channels})),
      groups_(groups),
      eps_(eps) {}

Tensor GroupNorm::operator()(const Tensor& x) const {
  auto location = here();
  return ops::group_norm(x, groups_, weight_.tensor(), bias_.tensor(), eps_);
}

Tensor split_heads(const Tensor& x, std::int64_t head_dim) {
  return ops::reshape(x, {x.dim(0), x.dim(1), x.dim(2) / head_dim, head_dim});
}

Tensor merge_heads(const Tensor& x) { return ops::reshape(x, {x.dim(0), x.dim(1), x.dim(2) * x.dim(3)}); }

Activation activation(const std::string& name) {
  static const std::map<std::string, Activation> known{{"gelu", ops::gelu},
                                                       {"gelu_new", ops::gelu_tanh},
                                                       {"gelu_pytorch_tanh", ops::gelu_tanh},
                                                       {"quick_gelu", ops::quick_gelu},
                                                       {"relu", ops::relu},
                                                       {"silu", ops::silu},
                                                       {"swish", ops::silu}};
  auto it = known.find(name);
  if (it != known.end()) return it->second;
  std::string names;
  for (const auto& [n, f] : known) names += (names.empty() ? "" : ", ") + n;
  fail(ErrorCode::kUnimplemented, "the activation function '{}' is not supported; supported: {}", name,
       names);
}

}  // namespace tessera::nn
