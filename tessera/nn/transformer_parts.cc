#include "tessera/nn/transformer_parts.h"

#include <array>
#include <cmath>

#include "tessera/ops/ops.h"

namespace tessera::nn {

EmbeddingMlp::EmbeddingMlp(const Scope& scope, std::int64_t in, std::int64_t out, bool bias)
    : linear_1_(scope / "linear_1", in, out, bias), linear_2_(scope / "linear_2", out, out, bias) {}

Tensor EmbeddingMlp::operator()(const Tensor& x) const { return linear_2_(ops::silu(linear_1_(x))); }

Tensor embed_time(const EmbeddingMlp& layers, const Tensor& time, DType dtype) {
  return layers(ops::cast(ops::timestep_embedding(time, kTimeChannels, true, 0), dtype));
}

Tensor embed_thousandfold(const EmbeddingMlp& layers, const Tensor& value, DType dtype) {
  Tensor thousandfold = ops::affine(ops::cast(value, dtype), 1000, 0);
  return embed_time(layers, ops::cast(thousandfold, DType::kF32), dtype);
}

AdaptiveNorm::AdaptiveNorm(const Scope& scope, std::int64_t dim, int parts, double eps, bool bias)
    : linear_(scope / "linear", dim, parts * dim, bias),
      norm_(scope / "norm", dim, eps, false),
      parts_(parts) {}

std::vector<Tensor> AdaptiveNorm::condition(const Tensor& conditioning) const {
  return ops::split(linear_(ops::silu(conditioning)), parts_, 1);
}

AdaptiveNormContinuous::AdaptiveNormContinuous(const Scope& scope, std::int64_t dim, double eps, bool bias)
    : norm_(scope, dim, 2, eps, bias) {}

Tensor AdaptiveNormContinuous::operator()(const Tensor& x, const Tensor& conditioning) const {
  enum { kScale, kShift };
  std::vector<Tensor> c = norm_.condition(conditioning);
  return ops::modulate(norm_.norm(x), c[kShift], c[kScale]);
}

GeluFeedForward::GeluFeedForward(const Scope& scope, std::int64_t dim)
    : in_(scope / "net" / 0 / "proj", dim, 4 * dim), out_(scope / "net" / 2, 4 * dim, dim) {}

Tensor GeluFeedForward::operator()(const Tensor& x) const { return out_(ops::gelu_tanh(in_(x))); }

HeadProjections::HeadProjections(const Scope& scope, std::int64_t heads, std::int64_t head_dim, bool added,
                                 std::optional<double> norm_eps, bool bias)
    : head_dim_(head_dim),
      q_(scope / (added ? "add_q_proj" : "to_q"), heads * head_dim, heads * head_dim, bias),
      k_(scope / (added ? "add_k_proj" : "to_k"), heads * head_dim, heads * head_dim, bias),
      v_(scope / (added ? "add_v_proj" : "to_v"), heads * head_dim, heads * head_dim, bias) {
  if (norm_eps) {
    norm_q_.emplace(scope / (added ? "norm_added_q" : "norm_q"), head_dim, *norm_eps);
    norm_k_.emplace(scope / (added ? "norm_added_k" : "norm_k"), head_dim, *norm_eps);
  }
}

Tensor norm_and_rotate(std::span<const Tensor> streams, std::span<const RmsNorm* const> norms,
                       const RopeTables* rope, bool halves) {
  if (norms.empty() && rope == nullptr)
    return streams.size() == 1 ? streams[0] : ops::concatenate(streams, 1);
  std::vector<Tensor> weights;
  for (const RmsNorm* norm : norms) weights.push_back(norm->weight());
  std::optional<graph::ScopedLocation> location;
  if (!norms.empty()) location.emplace(norms[0]->where());
  return ops::qk_norm_rope(streams, weights, norms.empty() ? 0 : norms[0]->eps(),
                           rope != nullptr ? rope->cos : Tensor(), rope != nullptr ? rope->sin : Tensor(),
                           halves);
}

Heads HeadProjections::operator()(const Tensor& x, const RopeTables* rope) const {
  auto ready = [&](const Linear& projection, const std::optional<RmsNorm>& norm) {
    const RmsNorm* norms[] = {norm ? &*norm : nullptr};
    return norm_and_rotate(std::array{split_heads(projection(x), head_dim_)}, std::span(norms, norm ? 1 : 0),
                           rope);
  };
  return {ready(q_, norm_q_), ready(k_, norm_k_), split_heads(v_(x), head_dim_)};
}

Heads project_jointly(const HeadProjections& first, const Tensor& x, const HeadProjections& second,
                      const Tensor& y, const RopeTables* rope, bool second_asks) {
  // What each stream has at `projection`, and its norm there.
  auto ready = [&](Linear HeadProjections::*projection, std::optional<RmsNorm> HeadProjections::*norm,
                   std::size_t streams) {
    std::vector<Tensor> parts{split_heads((first.*projection)(x), first.head_dim_)};
    if (streams > 1) parts.push_back(split_heads((second.*projection)(y), second.head_dim_));
    std::vector<const RmsNorm*> norms;
    if (norm != nullptr && first.*norm) norms = {&*(first.*norm), &*(second.*norm)};
    if (norms.size() > streams) norms.resize(streams);
    return norm_and_rotate(parts, norms, norm != nullptr ? rope : nullptr);
  };
  return {ready(&HeadProjections::q_, &HeadProjections::norm_q_, second_asks ? 2 : 1),
          ready(&HeadProjections::k_, &HeadProjections::norm_k_, 2), ready(&HeadProjections::v_, nullptr, 2)};
}

void share_projections(TensorParallelPlan& plan, const std::string& scope, std::int64_t heads,
                       std::int64_t head_dim, bool added) {
  for (const char* name :
       added ? std::array{"add_q_proj", "add_k_proj", "add_v_proj"} : std::array{"to_q", "to_k", "to_v"}) {
    plan.add(scope + "." + name, colwise(heads * head_dim, heads));
  }
}

void share_output(TensorParallelPlan& plan, const std::string& layer, std::int64_t heads,
                  std::int64_t head_dim) {
  plan.add(layer, rowwise(heads * head_dim, heads));
}

void share_feed_forward(TensorParallelPlan& plan, const std::string& scope, std::int64_t dim) {
  plan.add(scope + ".net.0.proj", colwise(4 * dim));
  plan.add(scope + ".net.2", rowwise(4 * dim));
}

Tensor attend(const Heads& heads) {
  double scale = 1.0 / std::sqrt(static_cast<double>(heads.q.dim(3)));
  return merge_heads(ops::attention(heads.q, heads.k, heads.v, {}, scale, false));
}

}  // namespace tessera::nn
