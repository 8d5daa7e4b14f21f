#include "ridge/plan/launch_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr auto all = Footprint::all, some = Footprint::some, few = Footprint::few;

// A backward pass: 0, 2, 4, 6 .. is the chain, each followed by a gradient of a weight that the
// last piece alone waits for; 6 leaves room.
Precedence chain() {
  return {{}, {0}, {0}, {2}, {2}, {4}, {4}, {6}, {6}, {8}, {8}, {1, 3, 5, 7, 9, 10}};
}

TEST(LaunchOrder, BackgroundWaitsUntilThereIsRoom) {
  std::vector<Footprint> footprints(12, some);
  footprints[6] = few;
  Precedence after = chain();
  const std::vector<bool> background = defer_background(after, footprints);
  EXPECT_THAT(background, ElementsAre(false, true, false, true, false, false, false, false, false,
                                      false, false, false))
      << "what the last piece soon waits for has no time";
  EXPECT_THAT(after[1], UnorderedElementsAre(0, 4)) << "follows what the piece with room follows";
  EXPECT_THAT(after[3], UnorderedElementsAre(2, 4));
}

TEST(LaunchOrder, WhatFillsTheDeviceIsNotDeferred) {
  std::vector<Footprint> footprints(12, some);
  footprints[6] = few;
  footprints[1] = all;
  Precedence after = chain();
  EXPECT_FALSE(defer_background(after, footprints)[1]);
  EXPECT_THAT(after[1], ElementsAre(0));
}

TEST(LaunchOrder, NothingWaitsForWhatFollowsIt) {
  std::vector<Footprint> footprints(12, some);
  footprints[8] = few;
  Precedence after = chain();
  after[8].push_back(1);  // say, because it takes its memory
  defer_background(after, footprints);
  EXPECT_THAT(after[1], ElementsAre(0));
}

TEST(LaunchOrder, TheLongestChainComesFirst) {
  EXPECT_THAT(critical_first(chain()), ElementsAre(0, 2, 4, 6, 8, 1, 3, 5, 7, 9, 10, 11));
}

// Whatever the work: every piece comes once, and after all that it must follow.
TEST(LaunchOrder, OrdersRespectWhatTheyAreGiven) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const std::size_t n = 1 + random() % 40;
    Precedence after(n);
    std::vector<Footprint> footprints;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < i; ++j)
        if (random() % 6 == 0) after[i].push_back(j);
      footprints.push_back(static_cast<Footprint>(random() % 3));
    }
    const Precedence given = after;
    defer_background(after, footprints);
    const std::vector<std::size_t> order = critical_first(after);
    ASSERT_EQ(order.size(), n) << "what waits for itself would be left out";
    std::vector<bool> done(n, false);
    for (const std::size_t i : order) {
      EXPECT_FALSE(done[i]);
      for (const std::size_t j : given[i]) EXPECT_TRUE(done[j]);
      done[i] = true;
    }
  }
}

}  // namespace
}  // namespace ridge
