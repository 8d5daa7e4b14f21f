#include "ridge/profile/memory_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "ridge/ops/silu.h"
#include "ridge/ops/unary.h"
#include "ridge/profile/memory_plot.h"
#include "tests/profile/real_recording.h"

namespace ridge {
namespace {

// A parameter, an activation and a workspace over one step of 100 ns:
//   time   0   10   20   40   50   100
//   live  256  256 1280 1344 1280  256
struct HandMade {
  Graph graph;
  Value w, y;
  Recording recording;

  HandMade() {
    w = graph.parameter("w", {64}, Init::zeros());
    {
      const Scope scope(graph, "layer");
      y = scale(w, 2.0f);
    }
    recording.graph = &graph;
    recording.memory = {change(0, 0, Phase::forward, false, w.id, 1, 256, 256),
                        change(20, 7, Phase::forward, false, y.id, 2, 1024, 1280),
                        change(40, 7, Phase::backward, true, 0, 3, 60, 1344),
                        change(50, 7, Phase::backward, true, 0, 3, -60, 1280),
                        change(100, 7, Phase::backward, false, y.id, 2, -1024, 256)};
    recording.phases = {
        {Phase::forward, 7, 10, 30}, {Phase::backward, 7, 30, 90}, {Phase::optimizer, 7, 90, 100}};
    recording.steps = {{7, 0, 100, 0.5}};
  }

  static Recording::MemoryChange change(std::int64_t time, std::int32_t step, Phase phase,
                                        bool workspace, std::uint32_t owner, std::uint64_t address,
                                        std::int64_t bytes, std::uint64_t live) {
    return {time, step, phase, workspace, owner, address, bytes, live, 2688};
  }
};

std::uint64_t at(const MemoryByGroup& groups, MemoryGroup group) {
  return groups[static_cast<std::size_t>(group)];
}

TEST(MemoryReport, KnowsThePeakTheAverageAndWhatWasAlive) {
  const HandMade h;
  const MemoryReport r = memory_report(h.recording);
  EXPECT_EQ(r.peak, 1344u);
  EXPECT_DOUBLE_EQ(r.average, (20 * 256 + 20 * 1280 + 10 * 1344 + 50 * 1280) / 100.0);
  EXPECT_EQ(r.peak_by_phase[0], 1280u);
  EXPECT_EQ(r.peak_by_phase[1], 1344u);
  EXPECT_EQ(r.peak_by_phase[2], 1280u);  // what it found; it only released
  EXPECT_EQ(r.allocations, 2);
  EXPECT_EQ(r.peak_step, 7);
  EXPECT_EQ(r.peak_phase, Phase::backward);
  EXPECT_EQ(r.peak_owner, "workspace of layer: scale");
  EXPECT_DOUBLE_EQ(r.fragmentation(), 0.5);
  EXPECT_EQ(at(r.at_peak, MemoryGroup::parameters), 256u);
  EXPECT_EQ(at(r.at_peak, MemoryGroup::activations), 1024u);
  EXPECT_EQ(at(r.at_peak, MemoryGroup::workspace), 64u);  // as the allocator rounds it
  EXPECT_EQ(at(r.at_peak, MemoryGroup::unknown), 0u);
  ASSERT_EQ(r.tensors.size(), 3u);
  EXPECT_EQ(r.tensors[0].name, "layer: scale");
  EXPECT_EQ(r.tensors[0].bytes, 1024u);
  EXPECT_TRUE(r.tensors[0].alive_at_peak);
}

TEST(MemoryReport, SaysWhatItCannotExplain) {
  HandMade h;
  h.recording.memory.erase(h.recording.memory.begin() + 1);  // as if there had been no room
  h.recording.dropped = 1;
  const MemoryReport r = memory_report(h.recording);
  EXPECT_EQ(r.peak, 1344u);
  EXPECT_EQ(at(r.at_peak, MemoryGroup::unknown), 1024u);
  EXPECT_NE(memory_report_text(r).find("Records that had no room: 1;"), std::string::npos);
}

// The allocator's own figures, from the executor: the report has no others.
TEST(MemoryReport, AgreesWithTheAllocator) {
  for (const std::int64_t accumulation : {1, 2}) {
    const RealRecording run(accumulation);
    const MemoryReport r = memory_report(run.recording());
    const MemoryStats& allocator = run.executor.memory();
    EXPECT_EQ(r.peak, allocator.peak_live);
    EXPECT_EQ(r.peak, run.executor.peak_bytes());
    EXPECT_EQ(r.peak_reserved, allocator.peak_reserved);
    EXPECT_EQ(r.released_to, allocator.live);
    EXPECT_EQ(r.allocations,
              static_cast<std::int64_t>(allocator.allocations - run.allocations_before));
    EXPECT_EQ(*std::ranges::max_element(r.peak_by_phase), r.peak);
    std::uint64_t sum = 0;
    for (const std::uint64_t bytes : r.at_peak) sum += bytes;
    EXPECT_EQ(sum, r.peak);
    sum = 0;
    for (const auto& [module, bytes] : r.at_peak_by_module) sum += bytes;
    EXPECT_EQ(sum, r.peak);
    EXPECT_GT(r.at_peak_by_module.at("layers.0.attention"), 0u);
    EXPECT_EQ(at(r.at_peak, MemoryGroup::unknown), 0u);
    EXPECT_LE(r.average, static_cast<double>(r.peak));
    const auto parameters = static_cast<std::uint64_t>(4 * tiny_llama.parameter_count());
    EXPECT_GE(at(r.at_peak, MemoryGroup::parameters), parameters);
    EXPECT_LE(at(r.at_peak, MemoryGroup::parameters), parameters + 64 * 32);
    EXPECT_EQ(at(r.at_peak, MemoryGroup::optimizer), 2 * at(r.at_peak, MemoryGroup::parameters));
  }
}

// The area below the allocator's level is that of every block: its bytes for as long as it lived.
TEST(MemoryReport, TheIntegralIsThatOfAllBlocks) {
  const RealRecording run;
  const auto& steps = run.recording().steps;
  std::map<std::uint64_t, Recording::MemoryChange> alive;
  double block_area = 0, step_ns = 0;
  const auto add = [&](std::uint64_t bytes, std::int64_t born, std::int64_t died) {
    for (const Recording::Step& s : steps)
      block_area += static_cast<double>(bytes) *
                    static_cast<double>(std::max<std::int64_t>(
                        0, std::min(died, s.end_ns) - std::max(born, s.begin_ns)));
  };
  for (const Recording::MemoryChange& c : run.recording().memory) {
    if (c.bytes > 0) {
      alive[c.address] = c;
    } else {
      add(allocated_for(c.bytes), alive.at(c.address).time_ns, c.time_ns);
      alive.erase(c.address);
    }
  }
  for (const auto& [address, c] : alive)
    add(allocated_for(c.bytes), c.time_ns, steps.back().end_ns);
  for (const Recording::Step& s : steps) step_ns += static_cast<double>(s.end_ns - s.begin_ns);
  EXPECT_NEAR(memory_report(run.recording()).average * step_ns, block_area, 1e-9 * block_area);
}

TEST(MemoryReport, PrintsTheSummaryOfTheWorkshop) {
  const HandMade h;
  const std::string text = memory_report_text(memory_report(h.recording));
  for (const char* line :
       {"Memory Analysis Summary:\n", "\nPeak Memory Usage: 0.00 MB\n",
        "\nAverage Memory Usage: ", "\nMemory at Forward Pass: ", "\nMemory at Backward Pass: ",
        "\nMemory at Optimizer Step: ", "\nNumber of Allocations: 2\n",
        "\nLargest Tensor: 0.00 MB (layer: scale)\n", "\nFragmentation at the Peak: 50.0 %\n",
        "\nPeak Occurs: step 7, backward phase, when workspace of layer: scale was allocated\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  const auto json = nlohmann::json::parse(memory_report_json(memory_report(h.recording)));
  EXPECT_EQ(json["peak_bytes"], 1344);
  EXPECT_EQ(json["peak"]["bytes_by_group"]["activations"], 1024);
  EXPECT_EQ(json["largest_tensors"][0]["name"], "layer: scale");
}

TEST(MemoryReport, GivesEveryFigureItsOwnLine) {
  MemoryReport r{.peak = 60'000'000,
                 .average = 40e6,
                 .peak_by_phase = {50'000'000, 60'000'000, 30'000'000},
                 .allocations = 3000,
                 .steps = 2,
                 .released_to = 20'000'000,
                 .peak_reserved = 90'000'000,
                 .peak_step = 7,
                 .peak_phase = Phase::backward,
                 .peak_owner = "layer: scale",
                 .reserved_at_peak = 80'000'000};
  r.tensors = {{.name = "w", .bytes = 10'000'000}};
  const std::string text = memory_report_text(r);
  EXPECT_NE(text.find("\nPeak Memory Usage: 60.00 MB\n"
                      "Average Memory Usage: 40.00 MB\n"
                      "Memory at Forward Pass: 50.00 MB\n"
                      "Memory at Backward Pass: 60.00 MB\n"
                      "Memory at Optimizer Step: 30.00 MB\n"
                      "Memory after the Last Step: 20.00 MB\n"
                      "Number of Allocations: 3,000 in 2 steps (1500 a step)\n"
                      "Largest Tensor: 10.00 MB (w)\n"
                      "Peak-to-Average Ratio: 1.50\n"
                      "Reserved from the System: 80.00 MB at the peak, 90.00 MB at most\n"
                      "Fragmentation at the Peak: 25.0 %\n"
                      "Peak Occurs: step 7, backward phase, when layer: scale was allocated\n"),
            std::string::npos)
      << text;
  const auto json = nlohmann::json::parse(memory_report_json(r));
  EXPECT_EQ(json["forward_peak_bytes"], 50'000'000);
  EXPECT_EQ(json["backward_peak_bytes"], 60'000'000);
  EXPECT_EQ(json["optimizer_peak_bytes"], 30'000'000);
  EXPECT_EQ(json["bytes_after_last_step"], 20'000'000);
  EXPECT_EQ(json["peak_reserved_bytes"], 90'000'000);
  EXPECT_EQ(json["peak"]["reserved_bytes"], 80'000'000);
}

TEST(MemoryReport, HasNothingToSayOfNothing) {
  HandMade h;
  h.recording.memory.clear();
  EXPECT_NE(memory_report_text(memory_report(h.recording)).find("no memory was recorded"),
            std::string::npos);
  EXPECT_NO_THROW(nlohmann::json::parse(memory_report_json(memory_report(h.recording))));
  EXPECT_NO_THROW(nlohmann::json::parse(memory_timeline_json(h.recording)));
  EXPECT_EQ(memory_timeline_text(h.recording), "no memory was recorded\n");
  EXPECT_NE(memory_timeline_svg(h.recording).find("no memory was recorded"), std::string::npos);
}

}  // namespace
}  // namespace ridge
