#include "ridge/base/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Statistics, OfNoneOneAndSeveral) {
  EXPECT_EQ(statistics_of({}).count, 0u);
  EXPECT_EQ(statistics_of({}).median, 0);
  const double one[] = {5};
  EXPECT_EQ(statistics_of(one).mean, 5);
  EXPECT_EQ(statistics_of(one).median, 5);
  EXPECT_EQ(statistics_of(one).std_dev, 0);
  const double several[] = {9, 2, 4, 5, 4, 7, 4, 5};
  const Statistics s = statistics_of(several);
  EXPECT_EQ(s.count, 8u);
  EXPECT_DOUBLE_EQ(s.mean, 5);
  EXPECT_DOUBLE_EQ(s.median, 4.5);
  EXPECT_DOUBLE_EQ(s.std_dev, std::sqrt(32.0 / 7.0));
  EXPECT_DOUBLE_EQ(s.variation(), std::sqrt(32.0 / 7.0) / 5);
  EXPECT_EQ(s.min, 2);
  EXPECT_EQ(s.max, 9);
  const double odd[] = {3, 1, 2};
  EXPECT_EQ(statistics_of(odd).median, 2);
}

// The values that numpy.percentile gives.
TEST(Percentile, InterpolatesBetweenNeighbors) {
  const double values[] = {40, 10, 30, 20};
  EXPECT_DOUBLE_EQ(percentile(values, 0), 10);
  EXPECT_DOUBLE_EQ(percentile(values, 1), 40);
  EXPECT_DOUBLE_EQ(percentile(values, 0.5), 25);
  EXPECT_DOUBLE_EQ(percentile(values, 0.9), 37);
  EXPECT_DOUBLE_EQ(percentile(values, 0.25), 17.5);
  EXPECT_EQ(percentile({}, 0.5), 0);
}

TEST(Percentile, OfATailNeedsEnoughValues) {
  const std::vector<double> few(99, 1.0), enough(100, 1.0);
  EXPECT_FALSE(tail_percentile(few, 0.99));
  EXPECT_EQ(tail_percentile(enough, 0.99), 1.0);
  EXPECT_TRUE(tail_percentile(few, 0.95));
  EXPECT_FALSE(tail_percentile({few.data(), 9}, 0.9));
  EXPECT_TRUE(tail_percentile({few.data(), 10}, 0.9));
}

TEST(SignInterval, IsExactForSmallSamples) {
  std::vector<double> values;
  const auto interval_of = [&](int n) {
    values.clear();
    for (int i = 1; i <= n; ++i) values.push_back(i * 29 % (n + 1));
    return sign_interval(values);
  };
  // The ranks that tables of the sign test give for 95 %.
  for (const auto& [n, low, high] : {std::tuple{6, 1, 6},
                                     {8, 1, 8},
                                     {9, 2, 8},
                                     {10, 2, 9},
                                     {12, 3, 10},
                                     {16, 4, 13},
                                     {25, 8, 18}}) {
    const auto interval = interval_of(n);
    ASSERT_TRUE(interval) << n;
    EXPECT_EQ(interval->low, low) << n;
    EXPECT_EQ(interval->high, high) << n;
  }
  EXPECT_FALSE(interval_of(5));
  EXPECT_FALSE(sign_interval({}));
}

TEST(PairedRatio, IsNotMovedByWhatMovesBoth) {
  std::vector<double> a, b;
  for (int i = 0; i < 8; ++i) {
    b.push_back(1 + 10 * i);
    a.push_back(0.5 * b.back());
  }
  const Ratio ratio = paired_ratio(a, b);
  EXPECT_DOUBLE_EQ(ratio.value, 0.5);
  ASSERT_TRUE(ratio.interval);
  EXPECT_DOUBLE_EQ(ratio.interval->low, 0.5);
  EXPECT_DOUBLE_EQ(ratio.interval->high, 0.5);
  EXPECT_FALSE(paired_ratio({a.data(), 5}, b).interval);
}

TEST(RatioOfMedians, HasTheSpreadOfBothSeries) {
  std::vector<double> a, b;
  for (int i = 0; i < 41; ++i) {
    a.push_back(200 + i);
    b.push_back(100 + i);
  }
  const Ratio ratio = ratio_of_medians(a, b);
  EXPECT_DOUBLE_EQ(ratio.value, 220.0 / 120.0);
  ASSERT_TRUE(ratio.interval);
  // The sign test's intervals of the two medians.
  const Interval of_a = *sign_interval(a), of_b = *sign_interval(b);
  EXPECT_GT(ratio.interval->low, of_a.low / of_b.high);
  EXPECT_LT(ratio.interval->high, of_a.high / of_b.low);
  EXPECT_LT(ratio.interval->low, 220.0 / of_b.high) << "wider than from one series alone";
  EXPECT_GT(ratio.interval->high, 220.0 / of_b.low);
  EXPECT_FALSE(ratio_of_medians({a.data(), 5}, b).interval);
  // It repeats, whatever the order of the samples.
  std::ranges::reverse(a);
  EXPECT_EQ(ratio_of_medians(a, b).interval->low, ratio.interval->low);
  EXPECT_EQ(ratio_of_medians(a, b).interval->high, ratio.interval->high);
}

}  // namespace
}  // namespace ridge
