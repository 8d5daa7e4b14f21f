#include "ridge/base/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace ridge {
namespace {

std::uint16_t rounded(std::uint32_t word) { return BFloat16(std::bit_cast<float>(word)).bits; }

TEST(DType, SizesAndNames) {
  EXPECT_EQ(size_of(DType::f32), 4u);
  EXPECT_EQ(size_of(DType::bf16), 2u);
  EXPECT_EQ(size_of(DType::i32), 4u);
  EXPECT_EQ(name_of(DType::f32), "f32");
  EXPECT_EQ(name_of(DType::bf16), "bf16");
  EXPECT_EQ(name_of(DType::i32), "i32");
  EXPECT_TRUE(is_floating(DType::f32));
  EXPECT_TRUE(is_floating(DType::bf16));
  EXPECT_FALSE(is_floating(DType::i32));
}

TEST(BFloat16, RoundsToTheNearest) {
  EXPECT_EQ(rounded(0x3F800000), 0x3F80);  // 1
  EXPECT_EQ(rounded(0x3F807FFF), 0x3F80);  // just below the middle
  EXPECT_EQ(rounded(0x3F808001), 0x3F81);  // just above it
  EXPECT_EQ(rounded(0xBF807FFF), 0xBF80);
  EXPECT_EQ(rounded(0xBF808001), 0xBF81);
  EXPECT_EQ(rounded(0x3FFFFFFF), 0x4000);  // carries into the exponent
}

TEST(BFloat16, RoundsTiesToEven) {
  EXPECT_EQ(rounded(0x3F808000), 0x3F80);
  EXPECT_EQ(rounded(0x3F818000), 0x3F82);
  EXPECT_EQ(rounded(0xBF808000), 0xBF80);
  EXPECT_EQ(rounded(0xBF818000), 0xBF82);
}

TEST(BFloat16, OverflowsToInfinity) {
  EXPECT_EQ(rounded(0x7F7F7FFF), 0x7F7F);  // still the largest finite number
  EXPECT_EQ(rounded(0x7F7F8000), 0x7F80);
  EXPECT_EQ(rounded(0x7F7FFFFF), 0x7F80);
  EXPECT_EQ(rounded(0xFF7FFFFF), 0xFF80);
}

TEST(BFloat16, KeepsInfinitiesAndZeros) {
  EXPECT_EQ(rounded(0x7F800000), 0x7F80);
  EXPECT_EQ(rounded(0xFF800000), 0xFF80);
  EXPECT_EQ(rounded(0x00000000), 0x0000);
  EXPECT_EQ(rounded(0x80000000), 0x8000);
}

TEST(BFloat16, RoundsDenormals) {
  EXPECT_EQ(rounded(0x00000001), 0x0000);
  EXPECT_EQ(rounded(0x00008000), 0x0000);  // a tie
  EXPECT_EQ(rounded(0x00008001), 0x0001);
  EXPECT_EQ(rounded(0x007FFFFF), 0x0080);  // up to the smallest normal number
}

TEST(BFloat16, NaNStaysQuietAndKeepsItsSign) {
  EXPECT_EQ(rounded(0x7F800001), 0x7FC0);  // payload only in the lower half
  EXPECT_EQ(rounded(0xFF800001), 0xFFC0);
  EXPECT_EQ(rounded(0x7FFFFFFF), 0x7FFF);  // rounding this up would give -0
  EXPECT_EQ(rounded(0xFFFFFFFF), 0xFFFF);
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(BFloat16, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    BFloat16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    const auto wide = static_cast<float>(value);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(wide), bits << 16);
    if (std::isnan(wide)) continue;
    EXPECT_EQ(BFloat16(wide).bits, bits);
  }
}

}  // namespace
}  // namespace ridge
