#include "ridge/trace/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/trace/made_trace.h"

namespace ridge::trace {
namespace {

using ::testing::ElementsAre;

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

TEST(TraceTimeline, HasTheCriticalPathInTheLanesThatItGoesThrough) {
  MadeTrace made;
  made.annotation("load", 0, 100).operation("aten::mm", 90, 30).launched("gemm", 105, 130, 40);
  made.launched("late", 200, 210, 10);
  const Trace trace = made.read();
  const HostNesting nesting(trace);
  const Work work = work_of(trace, nesting);
  const CriticalPath path = critical_path(trace, work, nesting);
  const Timeline drawn = timeline_of(trace, work, 1000, &path);
  ASSERT_EQ(drawn.path.slices.name.size(), path.pieces.size());
  const std::size_t last = path.pieces.size() - 1;
  EXPECT_EQ(drawn.path.lane.at(last), 0U) << "the stream of the last kernel";
  EXPECT_EQ(drawn.path.lane.at(last - 1), PathLane::no_lane) << "from its launch to it";
  for (std::size_t i = 0; i <= last; ++i) {
    const std::uint32_t number = drawn.path.lane[i];
    if (number == PathLane::no_lane) continue;
    const Lane& lane = drawn.lanes.at(number);
    const std::int64_t begin = drawn.path.slices.begin_ns[i];
    EXPECT_TRUE(std::ranges::any_of(lane.begin_ns, [&](std::int64_t at) { return at <= begin; }));
    EXPECT_EQ(lane.track, trace.events.track[path.pieces[i].row]);
  }
}

TEST(TraceTimeline, JoinsShortPiecesOfThePath) {
  const Trace trace = many(2000).read();
  const HostNesting nesting(trace);
  const Work work = work_of(trace, nesting);
  const CriticalPath path = critical_path(trace, work, nesting);
  const Timeline few = timeline_of(trace, work, 300, &path);
  std::size_t slices = few.path.slices.name.size();
  EXPECT_GT(slices, 0U);
  for (const Lane& lane : few.lanes) slices += lane.begin_ns.size();
  EXPECT_LE(slices, 300U);
  EXPECT_EQ(few.path.lane.size(), few.path.slices.name.size());
  EXPECT_EQ(std::accumulate(few.path.slices.count.begin(), few.path.slices.count.end(), 0U),
            path.pieces.size());
}

TEST(TraceTimeline, IsEmptyOfNothing) {
  EXPECT_TRUE(timeline(read_text("[]", "x"), 10).lanes.empty());
}

}  // namespace
}  // namespace ridge::trace
