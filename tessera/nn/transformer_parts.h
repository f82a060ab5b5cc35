#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/nn/layers.h"
#include "tessera/nn/rope.h"

// What the diffusion transformers are made of beyond single layers. Tensor names below a scope are
// Diffusers'.
namespace tessera::nn {

// Linear, SiLU, linear: how a vector [B, in] becomes a conditioning [B, out].
class EmbeddingMlp {
 public:
  EmbeddingMlp(const Scope& scope, std::int64_t in, std::int64_t out, bool bias = true);
  Tensor operator()(const Tensor& x) const;

 private:
  Linear linear_1_, linear_2_;
};

// The width of the sinusoids that embed a time.
constexpr int kTimeChannels = 256;

// Sinusoids (cosines first) of time f32 [B], rounded to `dtype`, through the layers.
Tensor embed_time(const EmbeddingMlp& layers, const Tensor& time, DType dtype);
// The same of value * 1000, a product that is computed in `dtype`, as the FLUX models do.
Tensor embed_thousandfold(const EmbeddingMlp& layers, const Tensor& value, DType dtype);

// A layer norm without weights, and the shifts, scales and gates that the conditioning gives: `parts` vectors
// [B, dim].
class AdaptiveNorm {
 public:
  AdaptiveNorm(const Scope& scope, std::int64_t dim, int parts, double eps, bool bias = true);
  std::vector<Tensor> condition(const Tensor& conditioning) const;
  Tensor norm(const Tensor& x) const { return norm_(x); }

 private:
  Linear linear_;
  LayerNorm norm_;
  int parts_;
};

// A layer norm without weights, scaled and shifted by the conditioning; the scale comes first, the other way
// round than in AdaptiveNorm (Diffusers' AdaLayerNormContinuous).
class AdaptiveNormContinuous {
 public:
  AdaptiveNormContinuous(const Scope& scope, std::int64_t dim, double eps, bool bias = true);
  // x [B, S, dim], conditioning [B, dim].
  Tensor operator()(const Tensor& x, const Tensor& conditioning) const;

 private:
  AdaptiveNorm norm_;
};

// Linear to four times the width, gelu (tanh), linear back.
class GeluFeedForward {
 public:
  GeluFeedForward(const Scope& scope, std::int64_t dim);
  Tensor operator()(const Tensor& x) const;

 private:
  Linear in_, out_;
};

// What attention takes: [B, S, heads, D], keys and values maybe of fewer heads.
struct Heads {
  Tensor q, k, v;
};

// Queries, or keys, [B, S_i, heads, D] of streams that meet in one attention: each through its norm (none
// where `norms` is empty), then joined along the tokens and, with tables, rotated.
Tensor norm_and_rotate(std::span<const Tensor> streams, std::span<const RmsNorm* const> norms,
                       const RopeTables* rope, bool halves = false);

// The projections of one stream [B, S, dim] to queries, keys and values, and the RMS norms over each head of
// the first two where `norm_eps` is given. `added` chooses the names of the second stream of an attention
// over two (add_q_proj for to_q, ...).
class HeadProjections {
 public:
  HeadProjections(const Scope& scope, std::int64_t heads, std::int64_t head_dim, bool added,
                  std::optional<double> norm_eps, bool bias = true);
  // Of one stream alone.
  Heads operator()(const Tensor& x, const RopeTables* rope = nullptr) const;

 private:
  friend Heads project_jointly(const HeadProjections&, const Tensor&, const HeadProjections&, const Tensor&,
                               const RopeTables*, bool);
  std::int64_t head_dim_;
  Linear q_, k_, v_;
  std::optional<RmsNorm> norm_q_, norm_k_;
};

// Of two streams [B, S_i, dim] that meet in one attention, joined in the order in which they are given.
// Without `second_asks` the queries are the first's alone.
Heads project_jointly(const HeadProjections& first, const Tensor& x, const HeadProjections& second,
                      const Tensor& y, const RopeTables* rope = nullptr, bool second_asks = true);

// How the ranks share out what is between a norm and the addition to its stream: the heads of projections,
// and the layer that puts them together; the hidden width of a GeluFeedForward. `scope` as in
// "transformer_blocks.*.attn".
void share_projections(TensorParallelPlan& plan, const std::string& scope, std::int64_t heads,
                       std::int64_t head_dim, bool added);
void share_output(TensorParallelPlan& plan, const std::string& layer, std::int64_t heads,
                  std::int64_t head_dim);
void share_feed_forward(TensorParallelPlan& plan, const std::string& scope, std::int64_t dim);

// Attention without a mask, scaled by 1 / sqrt(D): [B, S, heads * D].
Tensor attend(const Heads& heads);

}  // namespace tessera::nn
