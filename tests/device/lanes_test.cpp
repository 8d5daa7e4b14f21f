#include "ridge/device/lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;

using Order = std::vector<std::vector<std::size_t>>;

std::vector<DeviceWork> works_in(const Order& order) {
  std::vector<DeviceWork> works;
  for (const auto& after : order) works.push_back({.enqueue = {}, .after = after});
  return works;
}

// By work, all that is done before it.
std::vector<std::vector<bool>> done_in(const Order& order) {
  std::vector<std::vector<bool>> done(order.size(), std::vector<bool>(order.size(), false));
  for (std::size_t i = 0; i < order.size(); ++i)
    for (const std::size_t j : order[i]) {
      done[i][j] = true;
      for (std::size_t k = 0; k < j; ++k) done[i][k] = done[i][k] || done[j][k];
    }
  return done;
}

// The most works of which none follows another, by looking at all sets.
int most_at_once(const Order& order) {
  const auto done = done_in(order);
  int most = 0;
  for (unsigned set = 0; set < 1u << order.size(); ++set) {
    bool apart = true;
    for (std::size_t i = 0; i < order.size() && apart; ++i)
      for (std::size_t j = 0; j < i && apart; ++j)
        apart = !(set >> i & 1) || !(set >> j & 1) || !done[i][j];
    if (apart) most = std::max(most, std::popcount(set));
  }
  return most;
}

TEST(Lanes, WhatFitsStaysAsItIs) {
  const Order order{{}, {0}, {0}, {1}, {2}, {3, 4}, {}};
  EXPECT_EQ(follow_in_lanes(works_in(order), 3), order);
}

TEST(Lanes, WhatDoesNotFitFollowsTheLaneThatWasLeftFirst) {
  EXPECT_THAT(follow_in_lanes(works_in(Order(6)), 2),
              ElementsAre(IsEmpty(), IsEmpty(), ElementsAre(0), ElementsAre(1), ElementsAre(2),
                          ElementsAre(3)));
}

// Gradients of weights, say, for which there is no time yet: the chain waits for none of them.
TEST(Lanes, AChainKeepsItsLane) {
  Order order{{}};
  for (std::size_t link = 0; link < 20; ++link) {
    const std::size_t before = link == 0 ? 0 : 2 * link - 1;
    order.push_back({before});  // the next link
    order.push_back({before});
  }
  const Order bounded = follow_in_lanes(works_in(order), 4);
  for (std::size_t link = 1; link < order.size(); link += 2) EXPECT_EQ(bounded[link], order[link]);
  EXPECT_NE(bounded, order);
}

TEST(Lanes, NoMoreRunAtOnceAndNothingIsLost) {
  std::mt19937 random(11);
  int wide = 0;
  for (int round = 0; round < 60; ++round) {
    Order order(11);
    for (std::size_t i = 0; i < order.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (random() % 6 == 0) order[i].push_back(j);
    wide += most_at_once(order) > 3;
    const Order bounded = follow_in_lanes(works_in(order), 3);
    EXPECT_LE(most_at_once(bounded), 3);
    for (std::size_t i = 0; i < order.size(); ++i) EXPECT_THAT(bounded[i], IsSupersetOf(order[i]));
  }
  EXPECT_GT(wide, 30) << "these orders bound nothing";
}

}  // namespace
}  // namespace ridge
