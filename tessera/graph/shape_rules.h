#pragma once

#include <span>

#include "tessera/graph/node.h"

// The operations that programs are made of, each with its shape rule. `ops/` has the functions that record
// them, with their documentation; `kernels/` has how they are lowered, under the same name. All dtypes of
// float operands must be equal unless said otherwise.
namespace tessera::graph {

// One operand, like result.
extern const OpDef kNegate, kExp, kTanh, kSin, kCos, kSqrt, kRsqrt, kSigmoid, kSilu, kGelu, kGeluTanh,
    kQuickGelu, kRelu;
// Two operands that broadcast.
extern const OpDef kAdd, kSubtract, kMultiply, kDivide, kMaximum, kMinimum;
// x * multiplier + offset. Attributes: multiplier, offset (double).
extern const OpDef kAffine;
// Attribute: dtype.
extern const OpDef kCast;
// Attribute: shape.
extern const OpDef kReshape, kBroadcastTo;
// Attribute: permutation.
extern const OpDef kTranspose;
// Attributes: begin, end (one of each per axis).
extern const OpDef kSlice;
// Any number of operands; attribute: axis (int64).
extern const OpDef kConcatenate;
// Attributes: low, high (per axis).
extern const OpDef kPad;
// Attribute: axes, each once. Reduced axes go away; f32 accumulation. kMean wants floats, the others any
// number.
extern const OpDef kSum, kMean, kMax;
// x [..., K], w [N, K], optional b [N] -> [..., N].
extern const OpDef kLinear;
// a [..., M, K], b [..., K, N] with equal leading axes -> [..., M, N].
extern const OpDef kMatmul;
// x [N, C, H, W], w [O, C, kh, kw], optional b [O]. Attributes: stride, padding (int64).
extern const OpDef kConv2d;
// x [N, C, H, W] -> [N, C, 2H, 2W].
extern const OpDef kUpsampleNearest2x;
// table [V, D], ids i32 [...] -> [..., D].
extern const OpDef kEmbedding;
// x [B, S, D], positions i32 [B] -> [B, D].
extern const OpDef kTakeRows;
// x [..., D], optional w, b [D]. Attribute: eps. layer_norm takes 1 or 3 operands, rms_norm 1 or 2.
extern const OpDef kLayerNorm, kRmsNorm;
// x [N, C, ...], w, b [C]. Attributes: groups, eps.
extern const OpDef kGroupNorm;
// Over the last axis.
extern const OpDef kSoftmax;
// q [B, Q, H, D], k and v [B, K, H, D], optional bias broadcastable to [B, H, Q, K] -> [B, Q, H, D].
// Attributes: scale (double), causal (bool).
extern const OpDef kAttention;
// x [B, S, H, D], cos and sin f32 [S, D]: pairs (2i, 2i+1) are rotated.
extern const OpDef kRope;
// Queries or keys on their way to attention: streams x [B, S_i, H, D], an RMS norm weight [D] for each (with
// the attribute norm), cos and sin f32 [S, D] with S the sum of S_i (with rope) -> [B, S, H, D]. Attributes:
// streams (int64), norm, rope, halves (bool), eps (double).
extern const OpDef kQkNormRope;
// x [B, S, D], shift and scale [B, D] -> x * (1 + scale) + shift.
extern const OpDef kModulate;
// residual [B, S, D], gate [B, D], x [B, S, D] -> residual + gate * x.
extern const OpDef kGatedAdd;
// t f32 [B] -> f32 [B, dim]. Attributes: dim (int64), flip_sin_to_cos (bool), downscale_freq_shift,
// max_period (double).
extern const OpDef kTimestepEmbedding;
// x float [...] -> bool []: whether every element is finite.
extern const OpDef kAllFinite;
// x [N, 3, H, W] in [-1, 1] -> u8 [N, H, W, 3].
extern const OpDef kToImage;
// x, of each rank of the mesh -> the sum over ranks, on every rank. Attribute: ranks (int64).
extern const OpDef kAllReduce;

// All of the above.
std::span<const OpDef* const> all_operations();

}  // namespace tessera::graph
