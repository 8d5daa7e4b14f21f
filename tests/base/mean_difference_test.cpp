#include "ridge/base/mean_difference.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ridge {
namespace {

// From printed tables of Student's distribution.
TEST(MeanDifference, KnowsStudentsT) {
  EXPECT_NEAR(student_t(0.95, 1), 12.7062, 1e-3);
  EXPECT_NEAR(student_t(0.95, 2), 4.30265, 1e-4);
  EXPECT_NEAR(student_t(0.95, 5), 2.57058, 1e-4);
  EXPECT_NEAR(student_t(0.95, 30), 2.04227, 1e-4);
  EXPECT_NEAR(student_t(0.95, 31), 2.03951, 1e-4);
  EXPECT_NEAR(student_t(0.95, 1e6), 1.95996, 1e-4);
  EXPECT_NEAR(student_t(0.999, 40), 3.55097, 1e-4);
  EXPECT_NEAR(student_t(0.99, 10), 3.16927, 1e-4);
}

TEST(MeanDifference, NeedsTwoValuesOfEach) {
  const std::vector<double> one{1}, two{1, 2};
  EXPECT_FALSE(mean_difference_interval(one, two));
  EXPECT_FALSE(mean_difference_interval(two, one));
  EXPECT_TRUE(mean_difference_interval(two, two));
}

TEST(MeanDifference, IsCertainOfWhatDoesNotScatter) {
  const std::vector<double> a{2, 2, 2}, b{5, 5};
  const auto interval = mean_difference_interval(a, b);
  ASSERT_TRUE(interval);
  EXPECT_EQ(interval->low, 3);
  EXPECT_EQ(interval->high, 3);
}

// The true difference lies within in 95 of 100 cases, whatever the sizes and how they scatter.
TEST(MeanDifference, CoversTheTruth) {
  std::mt19937 random(5);
  std::normal_distribution<double> narrow(10, 1), wide(13, 4);
  int covered = 0;
  constexpr int rounds = 4000;
  for (int round = 0; round < rounds; ++round) {
    std::vector<double> a(5), b(8);
    for (double& value : a) value = narrow(random);
    for (double& value : b) value = wide(random);
    const auto interval = mean_difference_interval(a, b);
    covered += interval->low <= 3 && 3 <= interval->high ? 1 : 0;
  }
  EXPECT_NEAR(covered / static_cast<double>(rounds), 0.95, 0.012);
}

}  // namespace
}  // namespace ridge
