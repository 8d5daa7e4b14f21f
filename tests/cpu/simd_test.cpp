#include "ridge/cpu/simd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace ridge {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// The distance of `actual` from `exact`, in units of the last place of the float nearest to it.
double ulps(float actual, double exact) {
  int exponent = 0;
  std::frexp(static_cast<float>(exact), &exponent);
  return std::abs(actual - exact) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

// Every 67th float (a prime, so that all low bits occur) of the range where e^x is finite and at
// least half the smallest denormal.
TEST(Vexp, IsWithinTwoUlps) {
  double worst = 0;
  for (const std::uint32_t sign : {0u, 0x80000000u})
    for (std::uint32_t bits = 0;; bits += 67) {
      const float x = std::bit_cast<float>(sign | bits);
      if (x > 88.722f || x < -103.97f) break;
      worst = std::max(worst, ulps(vexp(x), std::exp(static_cast<double>(x))));
    }
  EXPECT_LE(worst, 2.0);
}

TEST(Vexp, IsExactAtZero) {
  EXPECT_EQ(vexp(0.0f), 1.0f);
  EXPECT_EQ(vexp(-0.0f), 1.0f);
}

TEST(Vexp, OverflowsToInfinity) {
  const float last = std::log(std::numeric_limits<float>::max());  // 88.7228..
  EXPECT_TRUE(std::isfinite(vexp(88.722f)));
  for (const float x : {std::nextafter(last, infinity), 88.8f, 89.0f, 100.0f, 1e30f, infinity})
    EXPECT_EQ(vexp(x), infinity) << x;
}

TEST(Vexp, UnderflowsToZeroThroughDenormals) {
  EXPECT_EQ(vexp(-103.0f), static_cast<float>(std::exp(-103.0)));
  for (const float x : {-103.98f, -104.0f, -105.0f, -1e30f, -infinity})
    EXPECT_EQ(vexp(x), 0.0f) << x;
}

TEST(Vexp, KeepsNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(vexp(nan)));
  EXPECT_TRUE(std::isnan(vexp(-nan)));
}

TEST(Sigmoid, SaturatesWithoutNaN) {
  EXPECT_EQ(sigmoid(0.0f), 0.5f);
  EXPECT_EQ(sigmoid(200.0f), 1.0f);
  EXPECT_EQ(sigmoid(infinity), 1.0f);
  EXPECT_EQ(sigmoid(-200.0f), 0.0f);
  EXPECT_EQ(sigmoid(-infinity), 0.0f);
}

}  // namespace
}  // namespace ridge
