#include "tessera/base/random.h"

#include <cmath>
#include <numbers>

#include "tessera/base/error.h"
#include "tessera/base/half.h"

namespace tessera {
namespace {

constexpr std::size_t kState = 624, kMiddle = 397;

// Torch draws normal numbers in blocks of this size: the first half of a block's uniforms gives radii, the
// second angles.
constexpr std::size_t kBlock = 16;

// Box-Muller on a block of uniforms in place: element j pairs with j + 8.
template <typename T>
void normalise_block(T* block) {
  for (std::size_t j = 0; j < kBlock / 2; ++j) {
    T radius = std::sqrt(T{-2} * std::log(T{1} - block[j]));
    T angle = T{2} * std::numbers::pi_v<T> * block[j + kBlock / 2];
    block[j] = radius * std::cos(angle);
    block[j + kBlock / 2] = radius * std::sin(angle);
  }
}

// n normals from the uniforms that `uniform` draws. Where n does not divide, the last block is drawn again;
// before that, f32 and f64 have drawn n uniforms (`draws_all`), the narrow dtypes only those of whole blocks.
template <typename T, typename Uniform>
std::vector<T> blocks(std::size_t n, bool draws_all, Uniform uniform) {
  std::vector<T> out(n);
  std::size_t drawn = draws_all ? n : n - n % kBlock;
  for (std::size_t i = 0; i < drawn; ++i) out[i] = uniform();
  for (std::size_t i = 0; i + kBlock <= n; i += kBlock) normalise_block(out.data() + i);
  if (n % kBlock != 0) {
    T* last = out.data() + n - kBlock;
    for (std::size_t i = 0; i < kBlock; ++i) last[i] = uniform();
    normalise_block(last);
  }
  return out;
}

}  // namespace

Generator::Generator(std::uint64_t seed) : seed_(seed), position_(kState) {
  state_[0] = static_cast<std::uint32_t>(seed);
  for (std::size_t i = 1; i < kState; ++i) {
    state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + static_cast<std::uint32_t>(i);
  }
}

// MT19937 (Matsumoto and Nishimura 1998).
std::uint32_t Generator::next32() {
  if (position_ == static_cast<int>(kState)) {
    for (std::size_t i = 0; i < kState; ++i) {
      std::uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % kState] & 0x7fffffffu);
      state_[i] = state_[(i + kMiddle) % kState] ^ (y >> 1) ^ ((y & 1u) != 0 ? 0x9908b0dfu : 0u);
    }
    position_ = 0;
  }
  std::uint32_t y = state_[static_cast<std::size_t>(position_++)];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

std::uint64_t Generator::next64() {
  std::uint64_t high = next32();
  return high << 32 | next32();
}

// One of a pair: the radius comes from the second uniform, and the sine waits for the next call.
double Generator::small_normal() {
  if (kept_) {
    double value = *kept_;
    kept_.reset();
    return value;
  }
  constexpr double kScale = 0x1p-53;
  double angle = 2 * std::numbers::pi * (static_cast<double>(next64() & ((1ull << 53) - 1)) * kScale);
  double radius = std::sqrt(-2 * std::log1p(-static_cast<double>(next64() & ((1ull << 53) - 1)) * kScale));
  kept_ = radius * std::sin(angle);
  return radius * std::cos(angle);
}

std::vector<double> Generator::randn_f64(std::int64_t n, DType dtype) {
  if (n < 0) invalid_argument("randn of {} elements", n);
  auto count = static_cast<std::size_t>(n);
  if (dtype != DType::kF64) {
    std::vector<float> narrow = randn(n, dtype);
    return {narrow.begin(), narrow.end()};
  }
  if (count >= kBlock) {
    return blocks<double>(count, true,
                          [this] { return static_cast<double>(next64() & ((1ull << 53) - 1)) * 0x1p-53; });
  }
  std::vector<double> out(count);
  for (double& v : out) v = small_normal();
  return out;
}

std::vector<float> Generator::randn(std::int64_t n, DType dtype) {
  if (n < 0) invalid_argument("randn of {} elements", n);
  auto round = [dtype](float v) {
    return dtype == DType::kBF16 ? round_to_bf16(v) : dtype == DType::kF16 ? f16_to_f32(f32_to_f16(v)) : v;
  };
  if (dtype == DType::kF64) {
    std::vector<double> wide = randn_f64(n, dtype);
    return {wide.begin(), wide.end()};
  }
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
    fail(ErrorCode::kUnimplemented, "no normal random numbers in {}", dtype_name(dtype));
  }
  auto count = static_cast<std::size_t>(n);
  std::vector<float> out;
  if (count >= kBlock) {
    out = blocks<float>(count, dtype == DType::kF32,
                        [this] { return static_cast<float>(next32() & 0xffffffu) * 0x1p-24f; });
  } else {
    for (std::size_t i = 0; i < count; ++i) out.push_back(static_cast<float>(small_normal()));
  }
  for (float& v : out) v = round(v);
  return out;
}

}  // namespace tessera
