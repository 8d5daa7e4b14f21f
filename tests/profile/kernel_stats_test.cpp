#include "ridge/profile/kernel_stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/ops/silu.h"
#include "ridge/ops/unary.h"
#include "tests/base/temporary_directory.h"
#include "tests/profile/real_recording.h"

namespace ridge {
namespace {

struct HandMade {
  Graph graph;
  Recording recording;

  HandMade() {
    const Value x = graph.input("x", {DType::f32, {4}});
    silu(scale(x, 2.0f));
    recording.graph = &graph;
    recording.device = "cpu";
    recording.thread_id = 77;
    recording.epoch_ns = 1000000;
    recording.nodes = {{0, 1, 0, 10}, {1, 1, 20, 50}, {0, 2, 60, 80}, {0, 3, 90, 120}};
  }
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(KernelStats, HaveRocprofsColumnsAndTrueNumbers) {
  // 10, 20 and 30 ns deviate by 10 from their mean of 20; 60 of 90 ns are two thirds.
  EXPECT_EQ(kernel_stats_csv(HandMade().recording),
            "\"Name\",\"Calls\",\"TotalDurationNs\",\"AverageNs\",\"Percentage\",\"MinNs\","
            "\"MaxNs\",\"StdDev\"\n"
            "\"scale\",3,60,20.000000,66.666667,10,30,10.000000\n"
            "\"silu\",1,30,30.000000,33.333333,30,30,0.000000\n");
}

TEST(KernelStats, AddUpToAllCallsOfARealRun) {
  const RealRecording run;
  std::int64_t calls = 0;
  double percentage = 0;
  for (const KernelStats& stats : kernel_stats(run.recording())) {
    calls += stats.calls;
    percentage += stats.percentage;
    EXPECT_LE(stats.min_ns, stats.average_ns);
    EXPECT_GE(stats.max_ns, stats.average_ns);
  }
  EXPECT_EQ(calls, static_cast<std::int64_t>(run.recording().nodes.size()));
  EXPECT_NEAR(percentage, 100, 1e-9);
}

TEST(KernelTrace, HasOneRowACallInRocprofsColumns) {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory.path / "kernel_trace.csv";
  const HandMade h;
  EXPECT_EQ(write_kernel_trace(h.recording, path), 0u);
  std::vector<std::string> lines = lines_of(read_text_file(path, 1 << 20));
  ASSERT_EQ(lines.size(), 5u);
  for (const std::string& line : lines) EXPECT_EQ(std::count(line.begin(), line.end(), ','), 21);
  EXPECT_EQ(lines[0].substr(0, 49), "\"Kind\",\"Agent_Id\",\"Queue_Id\",\"Stream_Id\",\"Thread_");
  EXPECT_EQ(
      lines[4],
      "\"KERNEL_DISPATCH\",\"CPU\",0,0,77,4,1,\"scale\",4,1000090,1000120,0,0,0,0,0,0,0,0,0,0,"
      "0");
  EXPECT_EQ(write_kernel_trace(h.recording, path, 3), 1u);
  EXPECT_EQ(lines_of(read_text_file(path, 1 << 20)).size(), 4u);
  EXPECT_THROW(write_kernel_trace(h.recording, directory.path / "missing" / "k.csv"), IoError);
}

}  // namespace
}  // namespace ridge
