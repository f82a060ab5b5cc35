#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/base/dtype.h"

namespace tessera {

// bf16 and f16 as bits, with conversions that round to nearest, ties to even.
inline float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t f32_to_bf16(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<std::uint16_t>((bits >> 16) | 0x40u);  // NaN stays NaN
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// value rounded to the precision of bf16.
inline float round_to_bf16(float value) { return bf16_to_f32(f32_to_bf16(value)); }

float f16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_f16(float value);

// Converts n elements of the floating-point dtypes f16, bf16, f32 and f64 (and copies any dtype to itself).
// Source and destination may be unaligned and must not overlap. Throws kUnimplemented for another pair,
// naming both.
void convert_elements(DType from, const std::byte* source, DType to, std::byte* destination, std::int64_t n);

}  // namespace tessera
