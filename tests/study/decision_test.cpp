#include "ridge/study/decision.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace ridge {
namespace {

// Of the tables of Wilcoxon's test: sums up to 8 of 10 ranks have a probability of 0.0244.
TEST(SignedRank, LeavesOutAsManyPairsAsTablesSay) {
  EXPECT_EQ(signed_rank_quantile(5, 0.025), 0u);
  EXPECT_EQ(signed_rank_quantile(6, 0.025), 1u);
  EXPECT_EQ(signed_rank_quantile(10, 0.025), 9u);
  EXPECT_EQ(signed_rank_quantile(10, 0.0244), 8u);
  EXPECT_EQ(signed_rank_quantile(20, 0.025), 53u);
}

TEST(SignedRank, GoesOverToTheNormalDistributionWithoutAJump) {
  const auto exact = static_cast<double>(signed_rank_quantile(300, 0.005));
  const auto normal = static_cast<double>(signed_rank_quantile(301, 0.005));
  EXPECT_NEAR(normal / exact, 301.0 * 302 / (300.0 * 301), 0.002);
}

TEST(SignedRank, FindsTheCenterOfWhatIsSymmetric) {
  const std::vector<double> values{-1, 0, 1, 2, 3, 4, 5, 6, 7, 108};
  const Center center = center_of(values, 0.025);
  EXPECT_DOUBLE_EQ(center.value, 3.5);
  ASSERT_TRUE(center.interval);
  EXPECT_LT(center.interval->low, 3.5);
  EXPECT_GT(center.interval->high, 3.5);
  EXPECT_LT(center.interval->high, 60) << "one outlier decides nothing";
  EXPECT_FALSE(center_of(std::vector<double>{1, 2, 3}, 0.025).interval);
  EXPECT_FALSE(center_of({}, 0.025).interval);
}

TEST(SignedRank, CountsWhatIsUnsureLess) {
  const std::vector<double> values{1, 2, 3, 4, 5, 6, 40, 50, 60},
      scales{1, 1, 1, 1, 1, 1, 100, 100, 100}, equal(values.size(), 7.0);
  const Center plain = center_of(values, 0.05), weighted = center_of(values, 0.05, 0.05, scales);
  EXPECT_NEAR(weighted.value, 3.7, 0.3) << "of the first six it is 3.5";
  EXPECT_GT(plain.value, 5);
  ASSERT_TRUE(plain.interval && weighted.interval);
  EXPECT_LT(weighted.interval->high, 6.5);
  EXPECT_GT(plain.interval->high, 20);
  EXPECT_DOUBLE_EQ(center_of(values, 0.05, 0.05, equal).value, plain.value);
}

// The sum of signed ranks by its definition, of distances in units of their scales.
TEST(SignedRank, RanksDistancesInUnitsOfTheirScales) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> scale(0.1, 10);
  for (int run = 0; run < 50; ++run) {
    std::vector<double> values, scales, units;
    for (int i = 0; i < 12; ++i) {
      scales.push_back(scale(random));
      values.push_back(scales.back() * (0.5 + normal(random)));
      units.push_back(values.back() / scales.back());
    }
    const double p = signed_rank_p_value(values, scales);
    EXPECT_DOUBLE_EQ(p, signed_rank_p_value(units));
    if (p > 0.4) continue;  // both ends of an interval would meet
    const Center center = center_of(values, p, p, scales);
    ASSERT_TRUE(center.interval);
    EXPECT_GT(center.interval->low, 0);
    const Center surer = center_of(values, p * 0.999, p, scales);
    if (surer.interval) {
      EXPECT_LE(surer.interval->low, 0);
    }
  }
}

// Seconds of a step on a machine that is now and then busy for a while with something else.
class BusyMachine {
 public:
  explicit BusyMachine(std::uint32_t seed) : random_(seed) {}

  double step(double seconds) {
    if (chance(0.02)) busy_ = chance(0.5) ? 1.0 : 1.0 + 2 * unit_(random_);
    double time = seconds * busy_ * std::exp(0.05 * normal_(random_));
    if (chance(0.03)) time *= 1 + 5 * unit_(random_);
    return time;
  }
  bool chance(double p) { return unit_(random_) < p; }

 private:
  std::mt19937 random_;
  std::uniform_real_distribution<double> unit_{0, 1};
  std::normal_distribution<double> normal_;
  double busy_ = 1;
};

// What is decided of a candidate that takes `slowdown` times as long, within 300 pairs.
Look decide(std::uint32_t seed, double slowdown) {
  BusyMachine machine(seed);
  SequentialDecision decision;
  while (decision.pairs() < 300) {
    double baseline = 0, candidate = 0;
    if (machine.chance(0.5)) {
      baseline = machine.step(0.1);
      candidate = machine.step(0.1 * slowdown);
    } else {
      candidate = machine.step(0.1 * slowdown);
      baseline = machine.step(0.1);
    }
    decision.add(baseline, candidate);
    if (!decision.look_is_due()) continue;
    if (const Look look = decision.look(); look.verdict != GateVerdict::undecided) return look;
  }
  return decision.look();
}

int count(double slowdown, GateVerdict verdict, int runs) {
  int found = 0;
  for (int run = 0; run < runs; ++run)
    found += decide(static_cast<std::uint32_t>(run), slowdown).verdict == verdict ? 1 : 0;
  return found;
}

TEST(SequentialDecision, RaisesFewFalseAlarmsOnABusyMachine) {
  constexpr int runs = 300;
  EXPECT_LE(count(1.0, GateVerdict::regression, runs), runs / 100);
  EXPECT_GE(count(1.0, GateVerdict::fine, runs), runs / 2);
  EXPECT_EQ(count(0.95, GateVerdict::fine, runs), runs);
}

TEST(SequentialDecision, FindsSlowdownsOnABusyMachine) {
  constexpr int runs = 200;
  EXPECT_GE(count(1.05, GateVerdict::regression, runs), 95 * runs / 100);
  EXPECT_EQ(count(1.30, GateVerdict::regression, runs), runs);
}

TEST(SequentialDecision, SaysHowMuchAndHowSurelySo) {
  const Look look = decide(1, 1.1);
  ASSERT_EQ(look.verdict, GateVerdict::regression);
  ASSERT_TRUE(look.interval);
  EXPECT_GT(look.interval->low, 0);
  EXPECT_NEAR(look.change, 0.1, 0.05);
  SequentialDecision few;
  few.add(1, 2);
  EXPECT_EQ(few.look().verdict, GateVerdict::undecided);
  EXPECT_FALSE(few.look().interval);
}

}  // namespace
}  // namespace ridge
