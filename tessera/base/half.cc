#include "tessera/base/half.h"

#include <cmath>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera {

float f16_to_f32(std::uint16_t bits) {
  std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  std::uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    float value = std::ldexp(static_cast<float>(mantissa), -24);
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

std::uint16_t f32_to_f16(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {                                                    // below 2^-14: subnormal
    float scaled = std::bit_cast<float>(magnitude) * 16777216.0f;  // in units of 2^-24, exact
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyint(scaled)));
  }
  std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

namespace {

template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <typename T>
void store(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof value);
}

template <typename From, typename To, typename F>
void map_elements(const std::byte* source, std::byte* destination, std::int64_t n, F f) {
  for (std::int64_t i = 0; i < n; ++i) {
    store<To>(destination + i * static_cast<std::int64_t>(sizeof(To)),
              f(load<From>(source + i * static_cast<std::int64_t>(sizeof(From)))));
  }
}

// Calls f with a function that reads one element of the dtype as To; false if the dtype is not a wide float.
template <typename To, typename F>
bool convert_to(DType from, const std::byte* source, std::byte* destination, std::int64_t n, F narrow) {
  switch (from) {
    case DType::kF16:
      map_elements<std::uint16_t, To>(source, destination, n,
                                      [&](std::uint16_t b) { return narrow(f16_to_f32(b)); });
      return true;
    case DType::kBF16:
      map_elements<std::uint16_t, To>(source, destination, n,
                                      [&](std::uint16_t b) { return narrow(bf16_to_f32(b)); });
      return true;
    case DType::kF32:
      map_elements<float, To>(source, destination, n, [&](float v) { return narrow(v); });
      return true;
    case DType::kF64:
      map_elements<double, To>(source, destination, n,
                               [&](double v) { return narrow(static_cast<float>(v)); });
      return true;
    default:
      return false;
  }
}

}  // namespace

void convert_elements(DType from, const std::byte* source, DType to, std::byte* destination, std::int64_t n) {
  if (from == to) {
    std::memcpy(destination, source, static_cast<std::size_t>(dtype_bytes(from, n)));
    return;
  }
  bool known = false;
  switch (to) {
    case DType::kF16:
      known = convert_to<std::uint16_t>(from, source, destination, n, [](float v) { return f32_to_f16(v); });
      break;
    case DType::kBF16:
      known = convert_to<std::uint16_t>(from, source, destination, n, [](float v) { return f32_to_bf16(v); });
      break;
    case DType::kF32:
      known = convert_to<float>(from, source, destination, n, [](float v) { return v; });
      break;
    case DType::kF64:
      known =
          convert_to<double>(from, source, destination, n, [](float v) { return static_cast<double>(v); });
      break;
    default:
      break;
  }
  if (!known)
    fail(ErrorCode::kUnimplemented, "no conversion from {} to {}", dtype_name(from), dtype_name(to));
}

}  // namespace tessera
