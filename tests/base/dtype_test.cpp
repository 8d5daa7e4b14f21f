#include "ridge/base/dtype.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "ridge/base/error.h"

namespace ridge {
namespace {

std::uint16_t rounded(std::uint32_t word) { return BFloat16(std::bit_cast<float>(word)).bits; }

TEST(DType, SizesAndNames) {
  EXPECT_EQ(size_of(DType::f32), 4u);
  EXPECT_EQ(size_of(DType::bf16), 2u);
  EXPECT_EQ(size_of(DType::f16), 2u);
  EXPECT_EQ(size_of(DType::f8e4m3), 1u);
  EXPECT_EQ(size_of(DType::f8e5m2), 1u);
  EXPECT_EQ(size_of(DType::i32), 4u);
  EXPECT_EQ(size_of(DType::s8), 1u);
  EXPECT_EQ(size_of(DType::split_f32), 4u);
  EXPECT_EQ(name_of(DType::f32), "f32");
  EXPECT_EQ(name_of(DType::bf16), "bf16");
  EXPECT_EQ(name_of(DType::f16), "f16");
  EXPECT_EQ(name_of(DType::f8e4m3), "f8e4m3");
  EXPECT_EQ(name_of(DType::f8e5m2), "f8e5m2");
  EXPECT_EQ(name_of(DType::i32), "i32");
  EXPECT_EQ(name_of(DType::s8), "s8");
  EXPECT_EQ(name_of(DType::split_f32), "split_f32");
  EXPECT_TRUE(is_floating(DType::f32));
  EXPECT_TRUE(is_floating(DType::bf16));
  EXPECT_TRUE(is_floating(DType::f16));
  EXPECT_TRUE(is_floating(DType::f8e4m3));
  EXPECT_FALSE(is_floating(DType::i32));
  EXPECT_FALSE(is_floating(DType::s8));
  EXPECT_FALSE(is_floating(DType::split_f32));
  EXPECT_TRUE(is_float8(DType::f8e4m3));
  EXPECT_TRUE(is_float8(DType::f8e5m2));
  EXPECT_FALSE(is_float8(DType::bf16));
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f8e4m3, DType::f8e5m2,
                            DType::i32, DType::s8, DType::split_f32})
    EXPECT_EQ(is_16_bit(dtype), size_of(dtype) == 2);
}

std::uint32_t joined(SplitFloat halves) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(halves));
}

// Every upper half with lower ones around the middle and the ends: the number again, and its
// nearest bf16.
TEST(SplitFloat, IsTheNearestInBf16AndTheWholeNumber) {
  for (std::uint32_t above = 0; above < 0x10000; ++above)
    for (const std::uint32_t below :
         {0u, 1u, 0x1234u, 0x7FFFu, 0x8000u, 0x8001u, 0xFEDCu, 0xFFFFu}) {
      const std::uint32_t word = above << 16 | below;
      const float value = std::bit_cast<float>(word);
      if (std::isnan(value)) continue;
      const SplitFloat halves(value);
      ASSERT_EQ(joined(halves), word);
      ASSERT_EQ(halves.upper, below == 0x8000 ? above + 1 : rounded(word));
    }
}

TEST(SplitFloat, GoesBeyondTheLargestAndComesBack) {
  for (const float sign : {1.0f, -1.0f}) {
    const float most = sign * std::numeric_limits<float>::max();
    EXPECT_EQ(static_cast<float>(SplitFloat(most)), most);
    EXPECT_TRUE(std::isinf(static_cast<float>(BFloat16(most))));
    EXPECT_EQ(SplitFloat(most).upper, BFloat16(most).bits);
    const float infinity = sign * std::numeric_limits<float>::infinity();
    EXPECT_EQ(SplitFloat(infinity), SplitFloat(BFloat16(infinity).bits, 0));
  }
}

// The NaN of a GPU has all bits set, and rounded up would be a zero.
TEST(SplitFloat, KeepsNaN) {
  for (const std::uint32_t word :
       {0x7FFFFFFFu, 0xFFFFFFFFu, 0x7F800001u, 0xFF808000u, 0x7FC00000u}) {
    const SplitFloat halves(std::bit_cast<float>(word));
    EXPECT_TRUE(std::isnan(static_cast<float>(halves)));
    BFloat16 upper;
    upper.bits = halves.upper;
    EXPECT_TRUE(std::isnan(static_cast<float>(upper)));
    EXPECT_EQ(halves.upper >> 15, word >> 31);
  }
}

TEST(SplitFloat, ATensorHasTheUpperHalvesFirst) {
  const std::vector<float> values{1.0f, -2.71828f, 3e-39f};
  std::array<std::uint16_t, 6> memory{};
  store_floats(values, DType::split_f32, memory.data());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(SplitFloat(memory[i], memory[3 + i]), SplitFloat(values[i]));
  std::vector<float> again(3);
  load_floats(memory.data(), DType::split_f32, again);
  EXPECT_EQ(again, values);
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

TEST(Int8, RoundsToTheNearestEvenAndSaturates) {
  for (int i = -127; i <= 127; ++i) {
    const auto x = static_cast<float>(i);
    EXPECT_EQ(Int8(x).bits, i);
    EXPECT_EQ(static_cast<float>(Int8(x)), x);
    if (i == 127) break;
    EXPECT_EQ(Int8(x + 0.5f).bits, i % 2 == 0 ? i : i + 1);
    EXPECT_EQ(Int8(std::nextafter(x + 0.5f, 200.0f)).bits, i + 1);
    EXPECT_EQ(Int8(std::nextafter(x + 0.5f, -200.0f)).bits, i);
  }
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Int8(127.5f).bits, 127);
  EXPECT_EQ(Int8(1e30f).bits, 127);
  EXPECT_EQ(Int8(infinity).bits, 127);
  EXPECT_EQ(Int8(-127.5f).bits, -127);
  EXPECT_EQ(Int8(-infinity).bits, -127);
  EXPECT_EQ(Int8(std::nanf("")).bits, -127);
}

template <class Q>
float value_of(int bits) {
  Q q;
  q.bits = static_cast<std::uint8_t>(bits);
  return static_cast<float>(q);
}

template <class Q>
class Float8Test : public ::testing::Test {};
using Float8Types = ::testing::Types<Float8E4M3, Float8E5M2>;
TYPED_TEST_SUITE(Float8Test, Float8Types);

TYPED_TEST(Float8Test, EveryValueSurvivesTheRoundTrip) {
  for (int bits = 0; bits < 0x100; ++bits) {
    const float value = value_of<TypeParam>(bits);
    if (std::isnan(value) || std::isinf(value)) continue;
    EXPECT_EQ(TypeParam(value).bits, bits);
  }
}

// Between neighbors a < b: to the nearer, in the middle to the even one.
TYPED_TEST(Float8Test, RoundsToTheNearest) {
  for (int bits = 0; std::isfinite(value_of<TypeParam>(bits + 1)); ++bits) {
    const float a = value_of<TypeParam>(bits), b = value_of<TypeParam>(bits + 1);
    const float middle = (a + b) / 2;  // exact
    const int even = bits % 2 == 0 ? bits : bits + 1;
    for (const int sign : {0, 0x80}) {
      const float s = sign ? -1.0f : 1.0f;
      EXPECT_EQ(TypeParam(s * std::nextafter(middle, a)).bits, sign | bits);
      EXPECT_EQ(TypeParam(s * middle).bits, sign | even);
      EXPECT_EQ(TypeParam(s * std::nextafter(middle, b)).bits, sign | (bits + 1));
    }
  }
}

TYPED_TEST(Float8Test, Saturates) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float large : {TypeParam::max(), 1.2f * TypeParam::max(), 1e30f, infinity}) {
    EXPECT_EQ(static_cast<float>(TypeParam(large)), TypeParam::max());
    EXPECT_EQ(static_cast<float>(TypeParam(-large)), -TypeParam::max());
  }
  EXPECT_EQ(TypeParam(1e-30f).bits, 0);
  EXPECT_EQ(TypeParam(-1e-30f).bits, 0x80);
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::denorm_min()).bits, 0);
}

TYPED_TEST(Float8Test, NaNStaysNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(nan))));
  EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(std::bit_cast<float>(0xFF800001u)))));
}

TEST(Float8E4M3, HasTheValuesOfItsSpecification) {
  EXPECT_EQ(Float8E4M3::max(), 448.0f);
  EXPECT_EQ(value_of<Float8E4M3>(0x01), 0x1p-9f);
  EXPECT_EQ(value_of<Float8E4M3>(0x07), 0x7p-9f);
  EXPECT_EQ(value_of<Float8E4M3>(0x08), 0x1p-6f);
  EXPECT_EQ(value_of<Float8E4M3>(0x38), 1.0f);
  EXPECT_EQ(value_of<Float8E4M3>(0x78), 256.0f);  // where IEEE would have infinity
  EXPECT_EQ(value_of<Float8E4M3>(0xFE), -448.0f);
  EXPECT_TRUE(std::isnan(value_of<Float8E4M3>(0x7F)));
  EXPECT_TRUE(std::isnan(value_of<Float8E4M3>(0xFF)));
}

TEST(Float8E5M2, HasTheValuesOfItsSpecification) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Float8E5M2::max(), 57344.0f);
  EXPECT_EQ(value_of<Float8E5M2>(0x01), 0x1p-16f);
  EXPECT_EQ(value_of<Float8E5M2>(0x04), 0x1p-14f);
  EXPECT_EQ(value_of<Float8E5M2>(0x3C), 1.0f);
  EXPECT_EQ(value_of<Float8E5M2>(0x7C), infinity);
  EXPECT_EQ(value_of<Float8E5M2>(0xFC), -infinity);
  for (const int nan : {0x7D, 0x7E, 0x7F, 0xFD}) EXPECT_TRUE(std::isnan(value_of<Float8E5M2>(nan)));
}

std::uint16_t half(float value) { return Float16(value).bits; }

float half_value_of(std::uint32_t bits) {
  Float16 value;
  value.bits = static_cast<std::uint16_t>(bits);
  return static_cast<float>(value);
}

TEST(Float16, HasTheValuesOfIeeeHalves) {
  EXPECT_EQ(half_value_of(0x3C00), 1.0f);
  EXPECT_EQ(half_value_of(0xC000), -2.0f);
  EXPECT_EQ(half_value_of(0x3555), 0x1.554p-2f);
  EXPECT_EQ(half_value_of(0x7BFF), 65504.0f);
  EXPECT_EQ(half_value_of(0x0400), 0x1p-14f);
  EXPECT_EQ(half_value_of(0x03FF), 1023 * 0x1p-24f);
  EXPECT_EQ(half_value_of(0x8001), -0x1p-24f);
  EXPECT_EQ(half_value_of(0x7C00), std::numeric_limits<float>::infinity());
  EXPECT_EQ(half_value_of(0xFC00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(half_value_of(0x7C01)));
  EXPECT_TRUE(std::signbit(half_value_of(0x8000)));
}

// Between any two neighbors: below their middle to the lower, above it to the upper, and on it to
// the even one; subnormals, and the step from the largest number to infinity, included.
TEST(Float16, RoundsToTheNearestAndTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const float low = half_value_of(bits);
    const float high = bits == 0x7BFF ? 65536.0f : half_value_of(bits + 1);
    const float middle = 0.5f * (low + high);  // exact in single precision
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    for (const std::uint32_t sign : {0u, 0x8000u}) {
      const float by = sign ? -1.0f : 1.0f;
      ASSERT_EQ(half(by * middle), sign | even);
      ASSERT_EQ(half(by * std::nextafter(middle, 0.0f)), sign | bits);
      ASSERT_EQ(half(by * std::nextafter(middle, 1e6f)), sign | (bits + 1));
    }
  }
}

TEST(Float16, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    if (std::isnan(half_value_of(bits))) continue;
    EXPECT_EQ(half(half_value_of(bits)), bits);
  }
}

TEST(Float16, OverflowsToInfinityAndUnderflowsToZero) {
  EXPECT_EQ(half(65519.99f), 0x7BFF);
  EXPECT_EQ(half(65520.0f), 0x7C00);
  EXPECT_EQ(half(-1e30f), 0xFC00);
  EXPECT_EQ(half(std::numeric_limits<float>::infinity()), 0x7C00);
  EXPECT_EQ(half(0x1p-25f), 0x0000);
  EXPECT_EQ(half(-0x1.000002p-25f), 0x8001);
  EXPECT_EQ(half(std::numeric_limits<float>::denorm_min()), 0x0000);
}

TEST(Float16, NaNStaysQuietAndKeepsItsSign) {
  EXPECT_EQ(half(std::bit_cast<float>(0x7F800001)), 0x7E00);  // payload only in the lower bits
  EXPECT_EQ(half(std::bit_cast<float>(0xFF800001)), 0xFE00);
  EXPECT_EQ(half(std::bit_cast<float>(0x7FFFFFFF)), 0x7FFF);
}

TEST(DType, ConvertsManyFloats) {
  const std::vector<float> values{1.0f, 0.1f, -70000.0f, 3e-6f};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    std::vector<std::uint16_t> memory(values.size() * size_of(dtype) / 2);
    std::vector<float> back(values.size());
    store_floats(values, dtype, memory.data());
    load_floats(memory.data(), dtype, back);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(back[i], dtype == DType::f32    ? values[i]
                         : dtype == DType::bf16 ? static_cast<float>(BFloat16(values[i]))
                                                : static_cast<float>(Float16(values[i])));
  }
  std::int32_t integer = 0;
  EXPECT_THROW(store_floats(std::array{1.0f}, DType::i32, &integer), Error);
}

}  // namespace
}  // namespace ridge
