#include "ridge/study/change_points.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "ridge/base/error.h"
#include "tests/study/series.h"

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::size_t> places(std::span<const double> series,
                                const ChangePointOptions& options = {}) {
  std::vector<std::size_t> places;
  for (const ChangePoint& change : change_points(series, options)) places.push_back(change.index);
  return places;
}

// otava_golden.py wrote it, with Apache Otava.
TEST(ChangePoints, AreThoseOfOtava) {
  std::ifstream golden(RIDGE_SOURCE_DIR "/tests/study/otava_golden.tsv");
  std::string line;
  std::getline(golden, line);
  std::size_t series_read = 0, changes = 0;
  while (std::getline(golden, line)) {
    std::istringstream cells(line);
    std::uint64_t seed = 0;
    std::int64_t sum = 0;
    cells >> seed >> sum;
    std::vector<std::size_t> expected;
    for (std::size_t index = 0; cells >> index;) expected.push_back(index);
    const TestSeries series = series_of(seed);
    ASSERT_EQ(series.sum, sum) << "the series of " << seed << " is another one";
    EXPECT_EQ(places(series.values, series.options), expected) << seed;
    ++series_read;
    changes += expected.size();
  }
  EXPECT_EQ(series_read, 200u);
  EXPECT_GT(changes, 200u);
}

TEST(ChangePoints, SayWhatChanged) {
  std::vector<double> series;
  for (int i = 0; i < 40; ++i) series.push_back((i < 25 ? 100.0 : 110.0) + (i % 2 == 0 ? 1 : -1));
  const std::vector<ChangePoint> changes = change_points(series);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].index, 25u);
  EXPECT_NEAR(changes[0].mean_before, 100, 0.1);
  EXPECT_NEAR(changes[0].mean_after, 110, 0.1);
  EXPECT_NEAR(changes[0].deviation_before, 1, 0.01);
  EXPECT_NEAR(changes[0].magnitude(), 0.1, 0.002);
  EXPECT_LT(changes[0].p_value, 1e-20);
}

TEST(ChangePoints, PassOverSmallChangesIfAsked) {
  std::vector<double> series;
  for (int i = 0; i < 60; ++i) series.push_back(i < 20 ? 100.0 : i < 40 ? 102.0 : 150.0);
  EXPECT_THAT(places(series), ElementsAre(20, 40));
  EXPECT_THAT(places(series, {.min_magnitude = 0.05}), ElementsAre(40));
}

TEST(ChangePoints, NeedSomethingThatChanges) {
  EXPECT_THAT(places({}), IsEmpty());
  EXPECT_THAT(places(std::vector<double>{1}), IsEmpty());
  EXPECT_THAT(places(std::vector<double>{1, 2}), IsEmpty());
  EXPECT_THAT(places(std::vector<double>(100, 0.1)), IsEmpty());
  EXPECT_THROW(places(std::vector<double>{1, 2}, {.window = 1}), UsageError);
}

}  // namespace
}  // namespace ridge
