#include "ridge/base/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace ridge {
namespace {

using ::testing::ElementsAre;

// The known answers that Random123 publishes for philox4x32-10, whose counter and key are arrays of
// words: ours are the same words, the lowest first.
TEST(Philox, GivesThePublishedAnswers) {
  constexpr std::uint64_t ones = ~std::uint64_t{0};
  EXPECT_THAT(philox(0, 0, 0), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(philox(ones, ones, ones),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  // counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0: the digits of pi
  EXPECT_THAT(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(StreamOf, IsFnv1a) {
  EXPECT_EQ(stream_of(""), 0xcbf29ce484222325u);
  EXPECT_EQ(stream_of("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(stream_of("foobar"), 0x85944171f73967e8u);
}

std::vector<float> normals(std::size_t count, std::uint64_t seed, std::uint64_t stream,
                           std::uint64_t first = 0) {
  std::vector<float> values(count);
  fill_normal(values, 1.0f, seed, stream, first);
  return values;
}

// Box and Muller's formula by the mathematics library.
double box_muller(std::uint64_t seed, std::uint64_t stream, std::uint64_t element) {
  const auto words = philox(seed, element / 4, stream);
  const std::size_t pair = element % 4 / 2 * 2;
  const double radius = std::sqrt(-2.0 * std::log((words[pair] + 1.0) * 0x1p-32));
  const double angle = 2.0 * std::numbers::pi * words[pair + 1] * 0x1p-32;
  return radius * (element % 2 ? std::sin(angle) : std::cos(angle));
}

TEST(FillNormal, FollowsBoxMullerToTheRoundingOfFloat) {
  const auto values = normals(100'000, 17, 3);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double expected = box_muller(17, 3, i);
    ASSERT_NEAR(values[i], expected, 0x1p-24 * std::abs(expected) + 1e-9) << "element " << i;
  }
}

TEST(FillNormal, HasTheMomentsOfANormal) {
  const std::size_t n = 1'000'000;
  const auto values = normals(n, 1, 2);
  double moment[5] = {}, adjacent = 0;
  for (std::size_t i = 0; i < n; ++i) {
    double power = 1;
    for (int k = 1; k <= 4; ++k) moment[k] += (power *= values[i]) / static_cast<double>(n);
    if (i > 0) adjacent += values[i] * values[i - 1] / static_cast<double>(n);
  }
  // Five standard deviations of each estimate: the variances of x^k are 1, 2, 15 and 96.
  const double sigma = 1.0 / std::sqrt(static_cast<double>(n));
  EXPECT_NEAR(moment[1], 0.0, 5 * sigma);
  EXPECT_NEAR(moment[2], 1.0, 5 * sigma * std::sqrt(2.0));
  EXPECT_NEAR(moment[3], 0.0, 5 * sigma * std::sqrt(15.0));
  EXPECT_NEAR(moment[4], 3.0, 5 * sigma * std::sqrt(96.0));
  EXPECT_NEAR(adjacent, 0.0, 5 * sigma);
}

TEST(FillNormal, AnyPartOfAStreamIsThatPartOfTheWhole) {
  const auto whole = normals(3000, 5, 7);
  for (const std::size_t first : {0, 1, 2, 3, 4, 5, 255, 256, 257, 1023, 2999})
    for (const std::size_t count : {1, 2, 3, 4, 5, 253, 256, 259, 1001}) {
      if (first + count > whole.size()) continue;
      const auto part = normals(count, 5, 7, first);
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(part[i], whole[first + i]) << "element " << i << " from " << first;
    }
}

TEST(FillNormal, ReachesFarIntoAStream) {
  const std::uint64_t first = (std::uint64_t{1} << 40) + 3;
  const auto values = normals(9, 5, 7, first);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], box_muller(5, 7, first + i), 1e-6);
}

TEST(FillNormal, ScalesByTheStandardDeviation) {
  const auto unit = normals(100, 5, 7);
  std::vector<float> scaled(100);
  fill_normal(scaled, 0.02f, 5, 7);
  for (std::size_t i = 0; i < unit.size(); ++i) EXPECT_EQ(scaled[i], 0.02f * unit[i]);
}

TEST(FillNormal, SeedsAndStreamsAreUnrelated) {
  const std::size_t n = 100'000;
  const auto a = normals(n, 1, 1), b = normals(n, 2, 1), c = normals(n, 1, 2);
  double ab = 0, ac = 0;
  for (std::size_t i = 0; i < n; ++i) {
    ab += a[i] * b[i] / static_cast<double>(n);
    ac += a[i] * c[i] / static_cast<double>(n);
  }
  EXPECT_NEAR(ab, 0.0, 5.0 / std::sqrt(static_cast<double>(n)));
  EXPECT_NEAR(ac, 0.0, 5.0 / std::sqrt(static_cast<double>(n)));
}

TEST(UniformInteger, TakesTheUpperPartOfTheProduct) {
  __extension__ using Wide = unsigned __int128;
  for (const std::uint32_t bound : {1u, 2u, 3u, 1000u, 50257u, 0x80000001u, 0xFFFFFFFFu})
    for (std::uint64_t i = 0; i < 100; ++i) {
      const auto words = philox(11, i, 13);
      const std::uint64_t word = (std::uint64_t{words[1]} << 32) | words[0];
      const auto expected = static_cast<std::uint32_t>((Wide{word} * bound) >> 64);
      ASSERT_EQ(uniform_integer(bound, 11, 13, i), expected);
      ASSERT_LT(expected, bound);
    }
}

TEST(UniformInteger, IsUniform) {
  constexpr std::uint32_t bound = 10;
  constexpr int n = 100'000;
  std::vector<int> counts(bound);
  for (std::uint64_t i = 0; i < n; ++i) ++counts[uniform_integer(bound, 3, 4, i)];
  double chi2 = 0;
  for (const int count : counts) chi2 += std::pow(count - n / 10.0, 2) / (n / 10.0);
  EXPECT_LT(chi2, 33.7);  // 9 degrees of freedom: exceeded by chance once in 10,000 seeds
}

}  // namespace
}  // namespace ridge
