#include "ridge/trace/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/trace/made_trace.h"

namespace ridge::trace {
namespace {

using testing::ElementsAre;

Timeline timeline(const Trace& trace, std::size_t most) {
  const HostNesting nesting(trace);
  return timeline_of(trace, work_of(trace, nesting), most);
}

MadeTrace many(int kernels) {
  MadeTrace made;
  for (int step = 0; step < 4; ++step) made.step(step, step * kernels * 5.0, kernels * 5.0 - 1);
  for (int i = 0; i < kernels; ++i)
    made.launched(i == 7 ? "long" : "short", i * 20, i * 20 + 5, i == 7 ? 12 : 4);
  return made;
}

TEST(TraceTimeline, HasALaneForEachStreamAndDepth) {
  MadeTrace made;
  made.operation("outer", 0, 100).operation("inner", 10, 50).operation("next", 70, 20);
  made.launched("k", 15, 200, 10).launched("other", 75, 205, 10, 9);
  made.slice("python_function", "train.py: step", 0, 500);
  const Trace trace = made.read();
  const Timeline drawn = timeline(trace, 1000);
  ASSERT_EQ(drawn.lanes.size(), 5U) << "two streams; outer, its children, their calls";
  EXPECT_TRUE(trace.tracks[drawn.lanes[0].track].device);
  EXPECT_EQ(drawn.lanes[3].depth, 1);
  EXPECT_THAT(drawn.lanes[3].begin_ns, ElementsAre(10'000, 70'000));
  EXPECT_EQ(drawn.duration_ns, 215'000);
  EXPECT_EQ(drawn.resolution_ns, 0);
}

TEST(TraceTimeline, JoinsWhatIsTooShort) {
  const Trace trace = many(2000).read();
  const Timeline all = timeline(trace, 100'000), few = timeline(trace, 300);
  EXPECT_EQ(all.lanes.at(0).begin_ns.size(), 2000U);
  std::size_t slices = 0;
  for (const Lane& lane : few.lanes) {
    slices += lane.begin_ns.size();
    for (std::size_t i = 1; i < lane.begin_ns.size(); ++i)
      EXPECT_LE(lane.begin_ns[i - 1] + lane.duration_ns[i - 1], lane.begin_ns[i]);
  }
  EXPECT_LE(slices, 300U);
  const Lane& card = few.lanes.at(0);
  EXPECT_EQ(std::accumulate(card.count.begin(), card.count.end(), 0U), 2000U);
  EXPECT_EQ(trace.texts[card.name.at(0)], "long") << "the longest gives the name";
}

TEST(TraceTimeline, KeepsOneStepInDetail) {
  const Trace trace = many(2000).read();
  const Timeline drawn = timeline(trace, 4000);
  ASSERT_TRUE(drawn.detail);
  const Lane& card = drawn.lanes.at(0);
  std::size_t within = 0;
  for (std::size_t i = 0; i < card.begin_ns.size(); ++i) {
    const std::int64_t begin = card.begin_ns[i] + drawn.begin_ns;
    if (begin < drawn.detail->begin_ns || begin >= drawn.detail->end_ns) continue;
    EXPECT_EQ(card.count[i], 1U);
    ++within;
  }
  EXPECT_GE(within, 499U) << "a quarter of the kernels";
}

TEST(TraceTimeline, IsEmptyOfNothing) {
  EXPECT_TRUE(timeline(read_text("[]", "x"), 10).lanes.empty());
}

}  // namespace
}  // namespace ridge::trace
