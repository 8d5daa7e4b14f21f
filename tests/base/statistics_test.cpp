#include "ridge/base/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
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
TEST(Percentile, InterpolatesBetweenNeighbours) {
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

TEST(MedianInterval, HoldsTheMedianAndRepeats) {
  std::vector<double> values;
  for (int i = 0; i < 101; ++i) values.push_back(i * 37 % 101);  // 0 to 100 in some order
  const Interval interval = median_interval(values);
  // The exact binomial interval of these ranks is [40, 60].
  EXPECT_NEAR(interval.low, 40, 2);
  EXPECT_NEAR(interval.high, 60, 2);
  EXPECT_EQ(median_interval(values).low, interval.low);
  EXPECT_EQ(median_interval(values).high, interval.high);
  std::ranges::reverse(values);
  EXPECT_EQ(median_interval(values).low, interval.low) << "the order of samples does not matter";
}

TEST(MedianInterval, OfOneValueIsThatValue) {
  const double one[] = {3};
  EXPECT_EQ(median_interval(one).low, 3);
  EXPECT_EQ(median_interval(one).high, 3);
  EXPECT_EQ(median_interval({}).high, 0);
}

TEST(Outliers, AreFarFromTheMedianInDeviations) {
  // The median is 11, the distances 1, 0, 2, 1, 3, 15, 14 and their median 2.
  const double values[] = {10, 11, 9, 12, 8, 26, 25};
  EXPECT_DOUBLE_EQ(median_absolute_deviation(values), 2);
  EXPECT_THAT(outliers(values, 7.25), ElementsAre(5));
  EXPECT_THAT(outliers(values, 6.75), ElementsAre(5, 6));
  EXPECT_THAT(outliers(values), IsEmpty());
  const double equal[] = {1, 1, 1, 1, 50};
  EXPECT_THAT(outliers(equal), IsEmpty());
  EXPECT_THAT(outliers({}), IsEmpty());
}

}  // namespace
}  // namespace ridge
