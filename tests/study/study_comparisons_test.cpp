#include "ridge/study/study_comparisons.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/study/made_study.h"

namespace ridge {
namespace {

using ::testing::IsEmpty;
using testing::MadeStudy;
using ::testing::SizeIs;

std::vector<VariantWork> same_work(std::size_t count) {
  return std::vector<VariantWork>(count, VariantWork{.work = "w", .steps = {}});
}

TEST(StudyComparisons, PairRoundsThatWereDisturbedAlike) {
  MadeStudy study({}, {"version=v1,v4"}, 7);
  // A machine that becomes four times as slow meanwhile hides a tenth, unless rounds are pairs.
  for (std::int64_t round = 1; round <= 7; ++round) {
    const double disturbed = 0.1 * (1 + 0.5 * static_cast<double>(round - 1));
    study.measure(0, round, disturbed, 1'000'000);
    study.measure(1, round, disturbed * (0.9 + 0.001 * static_cast<double>(round % 3)), 500'000);
  }
  const auto found = comparisons_of(study.result(), same_work(2));
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].before, 0u);
  EXPECT_EQ(found[0].after, 1u);
  EXPECT_EQ(found[0].basis, ComparisonBasis::rounds);
  EXPECT_NEAR(found[0].time.value, 0.901, 0.001);
  ASSERT_TRUE(found[0].time.interval);
  EXPECT_GT(found[0].time.interval->low, 0.89);
  EXPECT_LT(found[0].time.interval->high, 0.91);
  EXPECT_TRUE(found[0].is_clear());
  EXPECT_DOUBLE_EQ(*found[0].memory, 0.5);
  EXPECT_EQ(basis_text(found[0]), "7 rounds in pairs");
}

TEST(StudyComparisons, RankRunsWhereRoundsAreFew) {
  MadeStudy study({}, {"version=v1,v4"}, 4);
  for (std::int64_t round = 1; round <= 4; ++round) {
    const double noise = 1 + 0.001 * static_cast<double>(round);
    study.measure(0, round, 0.2 * noise);
    study.measure(1, round, 0.1 * noise);
  }
  const auto found = comparisons_of(study.result(), same_work(2));
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].basis, ComparisonBasis::runs);
  EXPECT_TRUE(found[0].is_clear());
  EXPECT_EQ(basis_text(found[0]), "4 and 4 runs");
}

TEST(StudyComparisons, SayNothingOfTooFew) {
  MadeStudy study({}, {"version=v1,v4"}, 1);
  study.measure(0, 1, 0.2);
  study.measure(1, 1, 0.1);
  std::vector<VariantWork> works = same_work(2);
  EXPECT_FALSE(comparisons_of(study.result(), works)[0].is_clear());
  works[0].steps = {0.20, 0.21, 0.19, 0.2, 0.2, 0.2};
  works[1].steps = {0.10, 0.11, 0.09, 0.1, 0.1, 0.1};
  const auto found = comparisons_of(study.result(), works);
  EXPECT_EQ(found[0].basis, ComparisonBasis::steps);
  EXPECT_TRUE(found[0].is_clear());
  EXPECT_EQ(basis_text(found[0]), "the 6 and 6 steps of one run each");
}

TEST(StudyComparisons, AreOfTheSameWorkAlone) {
  MadeStudy study({}, {"batch-size=1,2", "version=v1,v4"}, 1);
  for (const std::int64_t v : {0, 2, 3}) study.measure(v, 1, 0.1);  // and one that failed
  std::vector<VariantWork> works = same_work(4);
  works[2].work = works[3].work = "other";
  const auto found = comparisons_of(study.result(), works);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].before, 2u);
  EXPECT_EQ(found[0].after, 3u);
  works[3].work = "another";
  EXPECT_THAT(comparisons_of(study.result(), works), IsEmpty());
}

}  // namespace
}  // namespace ridge
