#include "ridge/study/false_discovery.h"

#include <gtest/gtest.h>

#include "ridge/study/binomial.h"
#include "ridge/study/rank_sum.h"

namespace ridge {
namespace {

// The example of Benjamini and Hochberg (1995), section 3.2: fifteen p-values at 0.05. The largest
// k with p(k) <= 0.05 k / 15 is 4: 0.0095 <= 0.0133, but 0.0201 > 0.0167. Bonferroni finds three.
TEST(FalseDiscovery, RejectsWhatTheExampleOfThePaperRejects) {
  const std::vector<double> p{0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344,
                              0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000};
  const std::vector<bool> found = discoveries(p, 0.05);
  for (std::size_t i = 0; i < p.size(); ++i) EXPECT_EQ(found[i], i < 4) << i;
}

TEST(FalseDiscovery, StepsUpOverValuesThatAreTooLarge) {
  // By hand at 0.1: thresholds 0.025, 0.05, 0.075, 0.1. The second smallest, 0.06, is above its
  // own, but the third, 0.07, is below its own, and takes it along.
  EXPECT_EQ(discoveries(std::vector<double>{0.07, 0.9, 0.02, 0.06}, 0.1),
            (std::vector<bool>{true, false, true, true}));
  EXPECT_EQ(discoveries(std::vector<double>{0.5, 0.2}, 0.1), (std::vector<bool>{false, false}));
  EXPECT_TRUE(discoveries({}, 0.1).empty());
}

// 0 of 100: 1 - 0.025^(1/100). 5 of 10: tables have 0.1871 to 0.8129.
TEST(Binomial, HasTheIntervalsOfTables) {
  EXPECT_NEAR(binomial_interval(0, 100).high, 0.03622, 1e-5);
  EXPECT_EQ(binomial_interval(0, 100).low, 0);
  EXPECT_NEAR(binomial_interval(5, 10).low, 0.1871, 1e-4);
  EXPECT_NEAR(binomial_interval(5, 10).high, 0.8129, 1e-4);
  EXPECT_EQ(binomial_interval(7, 7).high, 1);
  EXPECT_EQ(binomial_interval(0, 0).high, 1);
}

// Of the tables of Mann and Whitney: U <= 2 for 5 and 5 values at 0.025, U <= 8 for 7 and 7.
TEST(RankSum, LeavesOutAsManyPairsAsTablesSay) {
  EXPECT_EQ(rank_sum_quantile(5, 5, 0.025), 3u);
  EXPECT_EQ(rank_sum_quantile(7, 7, 0.025), 9u);
  EXPECT_EQ(rank_sum_quantile(5, 7, 0.025), 6u);
  EXPECT_EQ(rank_sum_quantile(3, 3, 0.025), 0u);
}

TEST(RankSum, FindsTheShiftOfOneSeriesToAnother) {
  const std::vector<double> before{1, 2, 3, 4, 5}, after{11, 12, 13, 14, 115};
  const Center shift = shift_between(before, after, 0.025);
  EXPECT_DOUBLE_EQ(shift.value, 10);
  ASSERT_TRUE(shift.interval);
  EXPECT_GE(shift.interval->low, 6);
  EXPECT_FALSE(shift_between(std::vector<double>{1}, after, 0.025).interval);
}

}  // namespace
}  // namespace ridge
