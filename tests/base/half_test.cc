#include "tessera/base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tessera/base/error.h"

namespace tessera {
namespace {

// The value of an f16 or bf16 from its definition.
double value_of(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
  double sign = (bits >> (exponent_bits + mantissa_bits)) & 1u ? -1 : 1;
  auto exponent = static_cast<int>((bits >> mantissa_bits) & ((1u << exponent_bits) - 1));
  double fraction = std::ldexp(bits & ((1u << mantissa_bits) - 1), -mantissa_bits);
  int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  return exponent == 0 ? sign * std::ldexp(fraction, 1 - bias)
                       : sign * std::ldexp(1 + fraction, exponent - bias);
}

void check_every_pattern(DType dtype, int exponent_bits, int mantissa_bits) {
  std::vector<std::uint16_t> all(65536), back(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(65536);
  auto n = static_cast<std::int64_t>(all.size());
  convert_elements(dtype, std::as_bytes(std::span(all)).data(), DType::kF32,
                   std::as_writable_bytes(std::span(wide)).data(), n);
  convert_elements(DType::kF32, std::as_bytes(std::span(wide)).data(), dtype,
                   std::as_writable_bytes(std::span(back)).data(), n);
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    double expected = value_of(i, exponent_bits, mantissa_bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide[i])) << i;
      ASSERT_TRUE(std::isnan(value_of(back[i], exponent_bits, mantissa_bits))) << i;
    } else {
      ASSERT_EQ(static_cast<double>(wide[i]), expected) << i;
      ASSERT_EQ(std::signbit(wide[i]), (i >> 15) == 1) << i;
      ASSERT_EQ(back[i], all[i]) << i;
    }
  }
}

TEST(Half, EveryF16) { check_every_pattern(DType::kF16, 5, 10); }
TEST(Half, EveryBF16) { check_every_pattern(DType::kBF16, 8, 7); }

// Between each two neighbours: the middle goes to the even one, what is beside the middle to the nearer one.
void check_ties(std::uint16_t (*narrow)(float), float (*widen)(std::uint16_t), std::uint16_t infinity) {
  for (std::uint16_t low = 0; low + 1 < infinity; ++low) {
    auto high = static_cast<std::uint16_t>(low + 1);
    auto middle =
        static_cast<float>((static_cast<double>(widen(low)) + static_cast<double>(widen(high))) / 2);
    ASSERT_EQ(narrow(middle), low % 2 == 0 ? low : high) << low;
    ASSERT_EQ(narrow(std::nextafter(middle, 0.0f)), low) << low;
    ASSERT_EQ(narrow(std::nextafter(middle, INFINITY)), high) << low;
    ASSERT_EQ(narrow(-middle), 0x8000u | (low % 2 == 0 ? low : high)) << low;
  }
}

TEST(Half, TiesOfF16GoToEven) {
  check_ties(f32_to_f16, f16_to_f32, 0x7c00);
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(1e30f), 0x7c00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(Half, TiesOfBF16GoToEven) {
  check_ties(f32_to_bf16, bf16_to_f32, 0x7f80);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(round_to_bf16(std::bit_cast<float>(0x7f800001u))));
}

TEST(Half, ConvertsUnalignedAndRefusesIntegers) {
  std::vector<std::byte> from(9), to(9);
  std::uint16_t one = 0x3f80;
  for (std::size_t i = 0; i < 2; ++i) std::memcpy(from.data() + 1 + 2 * i, &one, 2);
  convert_elements(DType::kBF16, from.data() + 1, DType::kF32, to.data() + 1, 2);
  float value = 0;
  std::memcpy(&value, to.data() + 5, 4);
  EXPECT_EQ(value, 1.0f);
  EXPECT_THROW(convert_elements(DType::kI32, from.data(), DType::kF32, to.data(), 1), Error);
}

}  // namespace
}  // namespace tessera
