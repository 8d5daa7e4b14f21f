#include "ridge/trace/intervals.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace ridge::trace {
namespace {

std::set<std::int64_t> points_of(const std::vector<Interval>& intervals) {
  std::set<std::int64_t> points;
  for (const Interval& one : intervals)
    for (std::int64_t at = one.begin_ns; at < one.end_ns; ++at) points.insert(at);
  return points;
}

std::vector<Interval> drawn(std::mt19937& random) {
  std::vector<Interval> intervals(random() % 12);
  for (Interval& one : intervals) {
    one.begin_ns = static_cast<std::int64_t>(random() % 60);
    one.end_ns = one.begin_ns + static_cast<std::int64_t>(random() % 10);
  }
  return intervals;
}

void expect_apart(const Intervals& intervals) {
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    EXPECT_LT(intervals[i].begin_ns, intervals[i].end_ns);
    if (i == 0) continue;
    EXPECT_LT(intervals[i - 1].end_ns, intervals[i].begin_ns);
  }
}

// Against sets of single nanoseconds.
TEST(TraceIntervals, AreSetsOfTime) {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<Interval> x = drawn(random), y = drawn(random);
    const std::set<std::int64_t> in_x = points_of(x), in_y = points_of(y);
    const Intervals a = merged(x), b = merged(y);
    expect_apart(a);
    EXPECT_EQ(points_of(a), in_x);
    EXPECT_EQ(length_ns(a), static_cast<std::int64_t>(in_x.size()));
    std::set<std::int64_t> rest;
    for (const std::int64_t at : in_x)
      if (!in_y.contains(at)) rest.insert(at);
    EXPECT_EQ(points_of(without(a, b)), rest);
    expect_apart(without(a, b));
  }
}

TEST(TraceIntervals, OverlapWhatHasTimeInCommonWithOneOfThem) {
  const Intervals intervals{{10, 20}, {30, 40}};
  for (const Interval& beside : {Interval{0, 10}, {20, 30}, {40, 50}, {22, 25}})
    EXPECT_FALSE(overlap(intervals, beside)) << beside.begin_ns;
  for (const Interval& with : {Interval{0, 11}, {19, 30}, {12, 15}, {0, 50}, {39, 50}, {25, 31}})
    EXPECT_TRUE(overlap(intervals, with)) << with.begin_ns;
  EXPECT_FALSE(overlap({}, {0, 10}));
}

}  // namespace
}  // namespace ridge::trace
