#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/runtime/tensor.h"

// The functions that models call. Operands live on one mesh; floats share a dtype unless said otherwise;
// shapes that do not fit throw kInvalidArgument where the operation is written, naming them. Norms, softmax,
// attention and the activations compute in f32 inside and round once to their operand's dtype.
namespace tessera::ops {

// Element by element.
Tensor negate(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor relu(const Tensor& x);
// x * sigmoid(x).
Tensor silu(const Tensor& x);
// x * Phi(x), with the error function.
Tensor gelu(const Tensor& x);
// The tanh approximation of gelu ("gelu_new", "gelu-approximate").
Tensor gelu_tanh(const Tensor& x);
// x * sigmoid(1.702 x).
Tensor quick_gelu(const Tensor& x);

// Element by element with numpy-style broadcasting.
Tensor add(const Tensor& a, const Tensor& b);
Tensor subtract(const Tensor& a, const Tensor& b);
Tensor multiply(const Tensor& a, const Tensor& b);
Tensor divide(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
// x * multiplier + offset, constants of the program.
Tensor affine(const Tensor& x, double multiplier, double offset);
// x in another dtype (rounded to nearest even).
Tensor cast(const Tensor& x, DType dtype);

// The same elements in another shape; one extent may be -1.
Tensor reshape(const Tensor& x, std::vector<std::int64_t> shape);
// Axis i of the result is axis permutation[i] of x.
Tensor transpose(const Tensor& x, std::vector<std::int64_t> permutation);
Tensor broadcast_to(const Tensor& x, const Shape& shape);
// [begin, end) of one axis; a negative axis counts from the end.
Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::int64_t end);
// n equal parts of one axis.
std::vector<Tensor> split(const Tensor& x, int parts, int axis);
Tensor concatenate(std::span<const Tensor> xs, int axis);
Tensor concatenate(std::initializer_list<Tensor> xs, int axis);
// Zeros around x: low[i] before and high[i] after axis i.
Tensor pad(const Tensor& x, std::vector<std::int64_t> low, std::vector<std::int64_t> high);

// Over the axes, which go away; sums are kept in f32.
Tensor sum(const Tensor& x, std::vector<std::int64_t> axes);
Tensor mean(const Tensor& x, std::vector<std::int64_t> axes);
Tensor max(const Tensor& x, std::vector<std::int64_t> axes);

// x [..., in] times weight [out, in] transposed, plus bias [out] if given.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
// [..., M, K] times [..., K, N].
Tensor matmul(const Tensor& a, const Tensor& b);
// x [N, C, H, W], weight [O, C, kh, kw], bias [O] if given.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, int stride, int padding);
// [N, C, H, W] -> [N, C, 2H, 2W], each pixel four times.
Tensor upsample_nearest2x(const Tensor& x);

// Rows of table [V, D] for i32 ids [...]; ids out of range are clamped.
Tensor embedding(const Tensor& table, const Tensor& ids);
// Row positions[b] of x[b]: x [B, S, D], positions i32 [B] -> [B, D].
Tensor take_rows(const Tensor& x, const Tensor& positions);

// Over the last axis, with weight and bias [D] or without both.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);
// x / sqrt(mean(x^2) + eps) over the last axis, times weight [D] if given.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);
// x [N, C, ...] in groups of channels; weight and bias [C].
Tensor group_norm(const Tensor& x, int groups, const Tensor& weight, const Tensor& bias, double eps);
// Over the last axis.
Tensor softmax(const Tensor& x);
// softmax(scale q k' + bias) v for each head: q [B, Q, H, D], k and v [B, K, G, D], bias (optional)
// broadcastable to [B, H, Q, K] and of the operands' dtype -> [B, Q, H, D]. With fewer key-value heads than
// queries' (G divides H), each serves H / G of those, neighbours. Rows with every key hidden give 0. Computed
// over blocks of queries (see kernels/common).
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias, double scale,
                 bool causal);
// Rotates pairs of the last axis: (2i, 2i+1), or with `halves` (i, i + D/2). x [B, S, H, D], cos and sin f32
// [S, D].
Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin, bool halves = false);
// Queries or keys on their way to attention: each stream [B, S_i, H, D] through an RMS norm over its heads
// with its own weight [D] (no weights: none), then all joined to [B, S, H, D] and rotated as by rope, with
// cos and sin [S, D] (without them not). The numbers are those of rms_norm, concatenate and rope.
Tensor qk_norm_rope(std::span<const Tensor> streams, std::span<const Tensor> weights, double eps,
                    const Tensor& cos = {}, const Tensor& sin = {}, bool halves = false);
// x * (1 + scale) + shift: x [B, S, D], shift and scale [B, D].
Tensor modulate(const Tensor& x, const Tensor& shift, const Tensor& scale);
// residual + gate * x: residual and x [B, S, D], gate [B, D].
Tensor gated_add(const Tensor& residual, const Tensor& gate, const Tensor& x);
// Sinusoids of timesteps f32 [B] -> f32 [B, dim], as Diffusers' get_timestep_embedding.
Tensor timestep_embedding(const Tensor& timesteps, int dim, bool flip_sin_to_cos, double downscale_freq_shift,
                          double max_period = 10000);
// Whether every element is finite: bool [].
Tensor all_finite(const Tensor& x);
// A picture: x [N, C, H, W] in [-1, 1] -> u8 [N, H, W, C], by clamp(x / 2 + 1/2) in x's dtype, then round(255
// x) to even.
Tensor to_image(const Tensor& x);

// The sum of every rank's x, on each rank of its mesh; x itself where the mesh is one device.
Tensor all_reduce(const Tensor& x);

}  // namespace tessera::ops
