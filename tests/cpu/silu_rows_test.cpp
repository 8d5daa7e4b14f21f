#include "ridge/cpu/silu_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace ridge {
namespace {

template <class T>
float silu_by_rows(float x) {
  T y;
  silu_rows(&x, 1, &y);
  return load(&y);
}

// Every 1009th float. A rounding to 8 bits is off by up to 2^-8, of a number that is already off by
// 2^-12; or by 2^-119, where processors take what is too small for 0.
TEST(SiluRows, RoundToBf16) {
  double worst = 0;
  for (const std::uint32_t sign : {0u, 0x80000000u})
    for (std::uint32_t bits = 0;; bits += 1009) {
      const float x = std::bit_cast<float>(sign | bits);
      if (!(std::abs(x) < 3e38f)) break;
      const double exact = x / (1 + std::exp(-static_cast<double>(x)));
      const double error = std::abs(silu_by_rows<BFloat16>(x) - exact);
      if (error > 0x1p-119) worst = std::max(worst, error / std::abs(exact));
    }
  EXPECT_LE(worst, 0x1p-8 + 0x1p-12);
}

TEST(SiluRows, KeepNanAndInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(silu_by_rows<BFloat16>(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(silu_by_rows<BFloat16>(infinity), infinity);
}

TEST(SiluRows, EndWhereTheyShould) {
  for (std::int64_t n = 0; n <= 40; ++n) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) - 20.0f;
    std::vector<BFloat16> y(x.size() + 32, BFloat16(7.0f));
    silu_rows(x.data(), n, y.data());
    for (std::size_t i = 0; i < y.size(); ++i)
      EXPECT_EQ(load(&y[i]), i < x.size() ? silu_by_rows<BFloat16>(x[i]) : 7.0f) << n << " " << i;
  }
}

}  // namespace
}  // namespace ridge
