#include "ridge/profile/memory_timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>
#include <string>

#include "ridge/ops/unary.h"
#include "ridge/profile/memory_plot.h"
#include "tests/profile/real_recording.h"

namespace ridge {
namespace {

std::uint64_t sum_of(const MemoryByGroup& groups) {
  return std::accumulate(groups.begin(), groups.end(), std::uint64_t{0});
}

std::uint64_t peak_of(const MemoryTimeline& timeline) {
  return std::ranges::max_element(timeline.points, {}, &MemoryPoint::live)->live;
}

// One tensor allocated and released a hundred thousand times, and once a larger one.
struct Large {
  static constexpr std::int64_t cycles = 100000, spike_at = 77777;
  Graph graph;
  Recording recording;

  Large() {
    const Value w = graph.parameter("w", {16}, Init::zeros());
    const Value y = scale(w, 2.0f), z = scale(y, 2.0f);
    recording.graph = &graph;
    recording.memory.push_back({0, 0, Phase::forward, false, w.id, 1, 64, 64, 4096});
    for (std::int64_t i = 1; i <= cycles; ++i) {
      const ValueId owner = i == spike_at ? z.id : y.id;
      const std::int64_t bytes = i == spike_at ? 1024 : 128;
      const auto live = static_cast<std::uint64_t>(64 + bytes);
      recording.memory.push_back({10 * i, 1, Phase::forward, false, owner, 2, bytes, live, 4096});
      recording.memory.push_back(
          {10 * i + 3, 1, Phase::forward, false, owner, 2, -bytes, 64, 4096});
    }
    recording.phases = {{Phase::forward, 1, 1, 10 * cycles + 5}};
    recording.steps = {{1, 0, 10 * cycles + 10, 0}};
  }
};

TEST(MemoryTimeline, HasEveryChangeAndItsGroupsAddUp) {
  const RealRecording run;
  const auto [begin, end] = recorded_span(run.recording());
  const MemoryTimeline timeline = memory_timeline(run.recording(), begin, end);
  EXPECT_TRUE(timeline.complete);
  EXPECT_EQ(timeline.points.front().time_ns, begin);
  EXPECT_EQ(peak_of(timeline), run.executor.memory().peak_live);
  const auto inside = std::ranges::count_if(run.recording().memory,
                                            [b = begin](const auto& c) { return c.time_ns > b; });
  EXPECT_EQ(timeline.points.size(), static_cast<std::size_t>(inside) + 1);
  for (const MemoryPoint& point : timeline.points) {
    ASSERT_EQ(sum_of(point.groups), point.live);
    ASSERT_EQ(point.groups[static_cast<std::size_t>(MemoryGroup::unknown)], 0u);
    ASSERT_GE(point.reserved, point.live);
  }
  EXPECT_TRUE(std::ranges::is_sorted(timeline.points, {}, &MemoryPoint::time_ns));
}

TEST(MemoryTimeline, StaysSmallAndKeepsThePeakInItsPlace) {
  const Large large;
  const auto [begin, end] = recorded_span(large.recording);
  const MemoryTimeline timeline = memory_timeline(large.recording, begin, end, 400);
  EXPECT_FALSE(timeline.complete);
  EXPECT_LE(timeline.points.size(), 401u);
  EXPECT_GE(timeline.points.size(), 100u);
  EXPECT_TRUE(std::ranges::is_sorted(timeline.points, {}, &MemoryPoint::time_ns));
  const auto peak = std::ranges::max_element(timeline.points, {}, &MemoryPoint::live);
  EXPECT_EQ(peak->live, 64u + 1024u);
  EXPECT_EQ(peak->time_ns, 10 * Large::spike_at);
  EXPECT_EQ(timeline.points.back().live, 64u);
  for (const MemoryPoint& point : timeline.points) ASSERT_EQ(sum_of(point.groups), point.live);
}

TEST(MemoryTimeline, WritesJsonWithAllSeriesOfOneLength) {
  const Large large;
  const auto json = nlohmann::json::parse(memory_timeline_json(large.recording, 400));
  EXPECT_EQ(json["complete"], false);
  const std::size_t points = json["time_ns"].size();
  EXPECT_LE(points, 401u);
  EXPECT_EQ(json["live_bytes"].size(), points);
  EXPECT_EQ(json["bytes_by_group"]["activations"].size(), points);
  const auto live = json["live_bytes"].get<std::vector<int>>();
  EXPECT_EQ(*std::ranges::max_element(live), 1088);
  EXPECT_EQ(json["phases"][0]["phase"], "forward");
  EXPECT_EQ(json["phases_left_out"], 0);
}

TEST(MemoryTimeline, WritesNoMorePhasesThanPoints) {
  Large large;
  large.recording.phases.resize(1000, large.recording.phases.front());
  large.recording.steps.resize(500, large.recording.steps.front());
  const auto json = nlohmann::json::parse(memory_timeline_json(large.recording, 400));
  EXPECT_EQ(json["phases"].size(), 400u);
  EXPECT_EQ(json["phases_left_out"], 600);
  EXPECT_EQ(json["steps"].size(), 400u);
  EXPECT_EQ(json["steps_left_out"], 100);
}

TEST(MemoryPlot, DrawsLevelsAndPhasesInCharacters) {
  Large large;
  large.recording.memory = {{0, 0, Phase::forward, false, 0, 1, 4000000, 4000000, 0},
                            {50, 1, Phase::backward, false, 1, 2, 4000000, 8000000, 0}};
  large.recording.phases = {{Phase::forward, 1, 0, 50}, {Phase::backward, 1, 50, 99}};
  large.recording.steps = {{1, 0, 100, 0}};
  EXPECT_EQ(memory_timeline_text(large.recording, 20),
            "Memory (MB) in step 1   ░ alive throughout   █ comes and goes\n"
            "        8 |          ██████████\n"
            "          |          ██████████\n"
            "          |          ██████████\n"
            "        6 |          ██████████\n"
            "          |          ██████████\n"
            "          |          ██████████\n"
            "        4 |░░░░░░░░░░░░░░░░░░░░\n"
            "          |░░░░░░░░░░░░░░░░░░░░\n"
            "          |░░░░░░░░░░░░░░░░░░░░\n"
            "        2 |░░░░░░░░░░░░░░░░░░░░\n"
            "          |░░░░░░░░░░░░░░░░░░░░\n"
            "          |░░░░░░░░░░░░░░░░░░░░\n"
            "          +|---------|--------|> Time\n"
            "             forward backward\n"
            "           0             0.1 µs\n");
}

TEST(MemoryPlot, DrawsAPictureOfTheStepThatHoldsThePeak) {
  const RealRecording run;
  const PeakStep step = peak_step(run.recording());
  EXPECT_GE(step.step, 5);
  const std::string svg = memory_timeline_svg(run.recording());
  for (const char* part : {"<svg xmlns=", "prefers-color-scheme:dark", "forward", "backward",
                           "parameters: ", "activations: ", "gradients: ", "</svg>\n"})
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_LT(memory_timeline_svg(Large().recording).size(), 1000000u);
}

// A character of the picture's font is at most 7 wide.
TEST(MemoryPlot, KeepsItsLegendWithinThePicture) {
  const RealRecording run;
  const std::string svg = memory_timeline_svg(run.recording());
  const std::string legend = svg.substr(svg.find("At the peak:"));
  const std::regex entry("x=\"([0-9.]+)\" y=\"([0-9.]+)\" text-anchor=\"start\">([^<]* MB)<");
  int entries = 0;
  std::map<double, double> ends;  // by line
  std::sregex_iterator match(legend.begin(), legend.end(), entry);
  for (; match != std::sregex_iterator(); ++match, ++entries) {
    const std::string text = (*match)[3];
    const double left = std::stod((*match)[1]);
    double& end = ends[std::stod((*match)[2])];
    EXPECT_GE(left, end) << text << " is written over the one before";
    end = left + 7 * static_cast<double>(text.size());
    EXPECT_LE(end, 960 - 20) << text;
  }
  EXPECT_GE(entries, 6);
  EXPECT_EQ(ends.size(), 2u);
}

TEST(MemoryPlot, TicksAreRoundAndFew) {
  EXPECT_DOUBLE_EQ(tick_distance(124.5, 6), 50);
  EXPECT_DOUBLE_EQ(tick_distance(10, 5), 2);
  EXPECT_DOUBLE_EQ(tick_distance(0.00061, 6), 0.0002);
  EXPECT_DOUBLE_EQ(tick_distance(0, 5), 1);
}

TEST(Allocations, AddUpToWhatIsAliveAtEveryMoment) {
  const RealRecording run;
  const auto [begin, end] = recorded_span(run.recording());
  const Allocations found = allocations(run.recording(), begin, end);
  EXPECT_EQ(found.left_out, 0u);
  EXPECT_TRUE(std::ranges::is_sorted(found.all, std::greater{}, &Allocation::bytes));
  for (const MemoryPoint& point : memory_timeline(run.recording(), begin, end).points) {
    std::uint64_t alive = 0, others_of_this_moment = 0;
    for (const Allocation& a : found.all) {
      if (a.begin_ns <= point.time_ns && point.time_ns < a.end_ns) alive += a.bytes;
      if (a.begin_ns == point.time_ns || a.end_ns == point.time_ns)
        others_of_this_moment += a.bytes;
    }
    // What changes in the same nanosecond has no order here.
    ASSERT_LE(alive, point.live + others_of_this_moment);
    ASSERT_GE(alive + others_of_this_moment, point.live);
  }
}

TEST(Allocations, AreCutToTheLargest) {
  const Large large;
  const Allocations found = allocations(large.recording, 0, 10 * Large::cycles + 10, 100);
  ASSERT_EQ(found.all.size(), 100u);
  EXPECT_EQ(found.left_out, static_cast<std::uint64_t>(Large::cycles + 1 - 100));
  EXPECT_EQ(found.all[0].bytes, 1024u);
  EXPECT_EQ(found.all[0].begin_ns, 10 * Large::spike_at);
  EXPECT_EQ(found.all[0].end_ns, 10 * Large::spike_at + 3);
  EXPECT_EQ(found.all[1].bytes, 128u);
  EXPECT_EQ(found.all[1].begin_ns, 10);  // of one size, the first
}

TEST(MemoryTimelineJson, NamesWhoHeldTheMemory) {
  const RealRecording run;
  const auto json = nlohmann::json::parse(memory_timeline_json(run.recording()));
  const auto& a = json["allocations"];
  ASSERT_GT(a["bytes"].size(), 100u);
  for (const char* column : {"tensor", "begin_ns", "end_ns"})
    EXPECT_EQ(a[column].size(), a["bytes"].size()) << column;
  std::map<std::string, std::uint64_t> by_name;
  for (std::size_t i = 0; i < a["bytes"].size(); ++i) {
    EXPECT_LE(a["begin_ns"][i], a["end_ns"][i]);
    by_name[a["tensors"][a["tensor"][i].get<std::size_t>()]["name"]] = a["bytes"][i];
  }
  EXPECT_EQ(by_name["embedding.weight"], 20u * 24 * 4);
  EXPECT_EQ(by_name.count("layers.1.attention: softmax"), 1u);
}

}  // namespace
}  // namespace ridge
