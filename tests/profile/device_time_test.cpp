// Recordings of a device that runs by itself: whose its activities are, and when nodes ran.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "ridge/base/file.h"
#include "ridge/cpu/device.h"
#include "ridge/profile/chrome_trace.h"
#include "ridge/profile/device_report.h"
#include "ridge/profile/kernel_stats.h"
#include "ridge/profile/memory_timeline.h"
#include "ridge/profile/node_stats.h"
#include "ridge/profile/operator_table.h"
#include "ridge/profile/perfetto.h"
#include "ridge/profile/recorder.h"
#include "ridge/session/session.h"
#include "ridge/trace/check/check.h"
#include "tests/base/temporary_directory.h"
#include "tests/profile/traced_device.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using testing::FakeTracer;
using testing::TracedDevice;

constexpr std::int64_t node_ns = FakeTracer::fill_ns + FakeTracer::gap_ns + FakeTracer::kernel_ns;

RunOptions small_options(const std::string& version) {
  RunOptions o = small_llama();
  o.version = version;
  o.resolve();
  return o;
}

// Six plain steps, enough for all captures, also those of single phases, which steps 2 and 3 time;
// three recorded, two plain.
struct TracedRun {
  CpuDevice cpu{2};
  TracedDevice device{cpu};
  Session session;
  Recorder recorder;
  int captures_before = 0, captures_during = 0, captures_after = 0;

  explicit TracedRun(const std::string& version) : session(small_options(version), device) {
    for (int i = 0; i < 6; ++i) session.step();
    captures_before = device.captures;
    recorder.attach(session.executor());
    for (int i = 0; i < 3; ++i) {
      recorder.begin_step(session.steps_done() + 1);
      recorder.end_step(session.step().loss);
    }
    captures_during = device.captures - captures_before;
    recorder.detach(session.executor());
    captures_after = device.captures - captures_before - captures_during;
    for (int i = 0; i < 2; ++i) session.step();
  }
  const Recording& host() const { return recorder.recording(); }
  std::size_t kernels_a_step() const { return host().nodes.size() / 3; }
};

class DeviceTime : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Versions, DeviceTime, ::testing::Values("v1", "v4"),
                         [](const auto& version) { return version.param; });

TEST_P(DeviceTime, GivesEveryActivityToTheNodeThatLaunchedIt) {
  const TracedRun run(GetParam());
  const Recording& host = run.host();
  EXPECT_EQ(host.replays.size(), GetParam() == "v4" ? 3u : 0u);
  ASSERT_FALSE(host.activities.empty());
  std::map<std::uint32_t, int> of_run;
  for (const Activity& activity : host.activities) {
    if (!activity.on_device()) continue;
    ASSERT_LT(activity.run, host.nodes.size());
    EXPECT_EQ(host.nodes[activity.run].node, activity.node);
    EXPECT_EQ(activity.in_graph, GetParam() == "v4");
    if (activity.kind == Activity::Kind::kernel) {
      const Op& op = *host.graph->nodes()[activity.node].op;
      EXPECT_EQ(host.activity_names[activity.name], std::string(name_of(op)) + "_kernel");
    }
    ++of_run[activity.run];
  }
  EXPECT_EQ(of_run.size(), host.nodes.size()) << "a run without activity";
  for (const auto& [index, count] : of_run) EXPECT_EQ(count, 2);
}

TEST_P(DeviceTime, IsTheOnlyTimeOfACapturedPass) {
  const TracedRun run(GetParam());
  const std::string host = host_times_text(run.host(), OperatorColumns::times);
  if (GetParam() == "v4") {
    EXPECT_EQ(host, "") << "a table whose times are all 0";
  } else {
    EXPECT_THAT(host, ::testing::HasSubstr("matmul"));
  }
  const std::string device = operator_table_text(operator_table(device_time(run.host())));
  EXPECT_THAT(device, ::testing::ContainsRegex("Step time[ |]+[0-9.]*[1-9]"));
}

TEST_P(DeviceTime, IsFromANodesFirstActivityToItsLast) {
  const TracedRun run(GetParam());
  const Recording device = device_time(run.host());
  EXPECT_TRUE(device.on_device_time);
  ASSERT_EQ(device.nodes.size(), run.host().nodes.size());
  std::multiset<NodeId> on_host, on_device;
  for (std::size_t i = 0; i < device.nodes.size(); ++i) {
    on_host.insert(run.host().nodes[i].node);
    on_device.insert(device.nodes[i].node);
    if (GetParam() == "v1") {
      EXPECT_EQ(device.nodes[i].node, run.host().nodes[i].node) << "one stream keeps the order";
    }
    EXPECT_EQ(device.nodes[i].end_ns - device.nodes[i].begin_ns, node_ns);
    if (GetParam() == "v1") {
      EXPECT_GE(device.nodes[i].begin_ns, run.host().nodes[i].begin_ns);
    }
  }
  EXPECT_EQ(on_device, on_host) << "a captured step may put them in another order";
  for (const Recording::ReplayRun& replay : run.host().replays)
    EXPECT_GE(device.nodes[replay.first_node].begin_ns, replay.begin_ns);
  const Recording again = device_time(device);
  EXPECT_EQ(again.nodes.front().begin_ns, device.nodes.front().begin_ns);
}

TEST_P(DeviceTime, NestsNodesInPhasesInSteps) {
  const TracedRun run(GetParam());
  const Recording device = device_time(run.host());
  EXPECT_EQ(device.phases.size(), 9u);
  ASSERT_EQ(device.steps.size(), 3u);
  std::size_t phase = 0, step = 0;
  for (const Recording::NodeRun& node : device.nodes) {
    while (device.phases[phase].end_ns < node.end_ns) ++phase;
    while (device.steps[step].end_ns < node.end_ns) ++step;
    EXPECT_LE(device.phases[phase].begin_ns, node.begin_ns);
    EXPECT_EQ(device.phases[phase].phase, device.graph->nodes()[node.node].phase);
    EXPECT_LE(device.steps[step].begin_ns, node.begin_ns);
    EXPECT_EQ(device.steps[step].step, node.step);
  }
  for (std::size_t i = 1; i < 3; ++i)
    EXPECT_LE(device.steps[i - 1].end_ns, device.steps[i].begin_ns);
}

TEST_P(DeviceTime, MovesMemoryWithTheNodes) {
  const TracedRun run(GetParam());
  const Recording device = device_time(run.host());
  ASSERT_EQ(device.memory.size(), run.host().memory.size());
  std::int64_t time = device.memory.front().time_ns;
  std::size_t within = 0;
  for (const Recording::MemoryChange& change : device.memory) {
    EXPECT_LE(time, change.time_ns);
    time = change.time_ns;
    within += change.time_ns >= device.nodes.front().begin_ns;
  }
  EXPECT_GT(within, run.kernels_a_step());
  std::uint64_t peak = 0, host_peak = 0;
  for (const auto& change : device.memory) peak = std::max(peak, change.live);
  for (const auto& change : run.host().memory) host_peak = std::max(host_peak, change.live);
  EXPECT_EQ(peak, host_peak);
}

TEST(Captures, AreMadeAgainForATracer) {
  const TracedRun run("v4");
  EXPECT_GT(run.captures_before, 0);
  EXPECT_EQ(run.captures_during, run.captures_before);
  EXPECT_EQ(run.captures_after, run.captures_before);
  EXPECT_EQ(run.device.captures, 3 * run.captures_before) << "no step waited for a capture";
}

TEST(Captures, TellTheSameOfMemoryAsLaunchesOneByOne) {
  CpuDevice cpu{2};
  TracedDevice device{cpu};
  RunOptions options = small_options("v4");
  options.disable_pass = "captured-launches";
  Session plain(options, device);
  Recorder one_by_one;
  one_by_one.attach(plain.executor());
  one_by_one.begin_step(1);
  one_by_one.end_step(plain.step().loss);
  one_by_one.detach(plain.executor());

  const TracedRun run("v4");
  const auto of_step = [](const Recording& recording, std::int32_t step) {
    std::vector<std::pair<std::uint32_t, std::int64_t>> changes;
    for (const Recording::MemoryChange& change : recording.memory)
      if (change.step == step) changes.emplace_back(change.owner, change.bytes);
    return changes;
  };
  // The first recorded step of either begins with what was alive.
  EXPECT_EQ(of_step(run.host(), 9).size(), of_step(run.host(), 8).size());
  const auto expected = of_step(one_by_one.recording(), 1);
  auto actual = of_step(run.host(), 9);
  ASSERT_GE(actual.size(), expected.size());
  actual.erase(actual.begin(),
               actual.end() - static_cast<std::ptrdiff_t>(expected.size()));  // of the step before
  EXPECT_EQ(actual, expected);
}

TEST(DeviceTimeOfTheCpu, IsItsOwn) {
  Graph graph;
  Recording recording;
  recording.graph = &graph;
  recording.steps = {{1, 10, 20, 0.5}};
  const Recording device = device_time(recording);
  EXPECT_FALSE(device.on_device_time);
  EXPECT_EQ(device.steps.front().begin_ns, 10);
  EXPECT_FALSE(device_report(recording).has_value());
}

// A graph of two nodes, launched in order and run on two streams.
struct TwoStreams {
  Graph graph;
  Recording host;

  TwoStreams() {
    const Value x = graph.input("x", {DType::f32, {4}});
    silu(scale(x, 2.0f));
    host.graph = &graph;
    host.device = "cuda";
    host.device_kind = DeviceKind::gpu;
    host.thread_id = 77;
    host.process_id = 77;
    host.activity_names = {"_ZN3two6kernelIfEEvPT_i", "cudaLaunchKernel", "Memcpy HtoD"};
    host.steps = {{3, 0, 1000, 0.5}};
    host.nodes = {{0, 3, 100, 110}, {1, 3, 200, 210}};
    using Kind = Activity::Kind;
    host.activities = {
        {.kind = Kind::copy, .name = 2, .stream = 7, .begin_ns = 50, .end_ns = 90, .bytes = 800},
        {.name = 0,
         .node = 0,
         .run = 0,
         .correlation = 1,
         .stream = 7,
         .begin_ns = 300,
         .end_ns = 900},
        {.name = 0,
         .node = 1,
         .run = 1,
         .correlation = 2,
         .stream = 8,
         .begin_ns = 600,
         .end_ns = 1500}};
  }
};

TEST(DeviceTimeOfOverlaps, CountsTimeOnce) {
  const TwoStreams run;
  const Recording device = device_time(run.host);
  ASSERT_EQ(device.nodes.size(), 2u);
  EXPECT_EQ(device.nodes[0].begin_ns, 300);
  EXPECT_EQ(device.nodes[0].end_ns, 900);
  EXPECT_EQ(device.nodes[1].begin_ns, 910) << "a little later, for slices around the first to end";
  EXPECT_EQ(device.nodes[1].end_ns, 1500);
  EXPECT_EQ(device.steps[0].begin_ns, 0);
  EXPECT_EQ(device.steps[0].end_ns, 1500) << "until the device is done";
}

// Its second part, which nothing waits for, comes when the other node is at work.
TEST(DeviceTimeOfOverlaps, GivesARunWhatItTakesLaterAndNothingBetween) {
  TwoStreams run;
  run.host.activities.push_back(
      {.name = 0, .node = 0, .run = 0, .correlation = 3, .begin_ns = 1400, .end_ns = 1700});
  run.host.activities.push_back(
      {.name = 0, .node = 0, .run = 0, .correlation = 4, .begin_ns = 1800, .end_ns = 1850});
  const Recording device = device_time(run.host);
  ASSERT_EQ(device.nodes.size(), 2u);
  EXPECT_EQ(device.nodes[0].end_ns, 900);
  EXPECT_EQ(device.nodes[0].later_ns, 200 + 50);
  EXPECT_EQ(device.nodes[0].time_ns(), 600 + 250);
  EXPECT_EQ(device.nodes[1].begin_ns, 910);
  EXPECT_EQ(device.nodes[1].time_ns(), 590);
  EXPECT_EQ(device.phases.back().end_ns, 1850);
  EXPECT_EQ(device.steps[0].end_ns, 1850);
  for (const NodeStats& stats : node_stats(device)) {
    EXPECT_EQ(stats.calls, 1);
    EXPECT_EQ(stats.total_ns, stats.node == 0 ? 850 : 590);
  }
}

// Of a run that was going on when another began and ended, all activities are its own.
TEST(DeviceTimeOfOverlaps, CountsWhatLiesWithinAnotherAsNothing) {
  TwoStreams run;
  run.host.activities[2].begin_ns = 400, run.host.activities[2].end_ns = 500;
  run.host.activities.push_back(
      {.name = 0, .node = 0, .run = 0, .correlation = 3, .begin_ns = 950, .end_ns = 1000});
  const Recording device = device_time(run.host);
  ASSERT_EQ(device.nodes.size(), 2u);
  EXPECT_EQ(device.nodes[0].time_ns(), 600 + 50);
  EXPECT_EQ(device.nodes[1].time_ns(), 0);
}

TEST(DeviceReport, AddsUp) {
  const TwoStreams run;
  const auto report = device_report(device_time(run.host));
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->kernels, 2);
  EXPECT_EQ(report->copies, 1);
  EXPECT_EQ(report->bytes_copied, 800u);
  EXPECT_EQ(report->step_ns, 1500);
  EXPECT_EQ(report->busy_ns, 40 + 1200);
  EXPECT_EQ(report->kernel_ns, 1200);
  EXPECT_EQ(report->unattributed_ns, 40);
  EXPECT_DOUBLE_EQ(report->idle_fraction(), 0.2);
  ASSERT_EQ(report->longest_gaps.size(), 1u);
  EXPECT_EQ(report->longest_gaps[0].begin_ns, 90);
  EXPECT_EQ(report->longest_gaps[0].end_ns, 300);
  EXPECT_EQ(report->longest_gaps[0].after, no_node);
  EXPECT_EQ(report->longest_gaps[0].before, 0u);
  ASSERT_EQ(report->kernels_by_time.size(), 1u);
  EXPECT_EQ(report->kernels_by_time[0].name, "void two::kernel<float>(float*, int)");
  EXPECT_EQ(report->kernels_by_time[0].calls, 2);
  EXPECT_EQ(report->kernels_by_time[0].op, "silu") << "whose calls take the most";
  const auto json = nlohmann::json::parse(device_report_json(run.host, *report));
  EXPECT_EQ(json["unattributed_ns"], 40);
  EXPECT_THAT(device_report_text(run.host, *report), ::testing::HasSubstr("20.0 %"));
}

TEST(KernelCsv, HasTheDevicesKernels) {
  const TracedRun run("v4");
  const auto stats = kernel_stats(run.host());
  std::int64_t calls = 0;
  for (const KernelStats& s : stats) {
    EXPECT_TRUE(s.name.ends_with("_kernel")) << s.name;
    EXPECT_DOUBLE_EQ(s.average_ns, FakeTracer::kernel_ns);
    calls += s.calls;
  }
  EXPECT_EQ(calls, static_cast<std::int64_t>(run.host().nodes.size()));
  const TemporaryDirectory directory;
  const auto path = directory.path / "kernel_trace.csv";
  EXPECT_EQ(write_kernel_trace(run.host(), path), 0u);
  const std::string text = read_text_file(path, 1 << 24);
  EXPECT_THAT(text, ::testing::HasSubstr(",1024,0,40,0,0,128,1,1,32768,2,1\n"));
}

TEST_P(DeviceTime, MakesTracesThatConsumersTake) {
  const TracedRun run(GetParam());
  const TemporaryDirectory directory;
  const auto path = directory.path / "host_1.2.pt.trace.json";
  const TraceSize size = write_chrome_trace(path, run.host());
  EXPECT_EQ(size.left_out, 0u);
  const std::string text = read_text_file(path, std::size_t{1} << 28);
  const auto trace = nlohmann::json::parse(text);
  std::size_t kernels = 0, attributed = 0, tied = 0;
  std::set<nlohmann::json> launches, ends;
  for (const auto& event : trace["traceEvents"]) {
    const std::string category = event.value("cat", "");
    if (category == "kernel") {
      ++kernels;
      attributed += event["args"].contains("operator") && event["args"].contains("scope");
      EXPECT_EQ(event["pid"], 0);
      EXPECT_EQ(event["args"]["device"], 0);
      EXPECT_EQ(event["args"]["grid"], (nlohmann::json{256, 2, 1}));
      EXPECT_GT(event["args"]["theoretical occupancy %"], 0);
      ends.insert(event["args"]["correlation"]);
      tied += event["args"].contains("External id");
    }
    if (category == "cuda_runtime") launches.insert(event["args"]["correlation"]);
  }
  EXPECT_EQ(kernels, run.host().nodes.size());
  EXPECT_EQ(attributed, kernels);
  EXPECT_EQ(tied, GetParam() == "v1" ? kernels : 0) << "to the slice of its operator";
  EXPECT_TRUE(std::ranges::includes(launches, ends));
  EXPECT_EQ(trace["deviceProperties"][0]["numSms"], 4);
  for (const trace::TraceVerdict& verdict : trace::check_trace(path).verdicts)
    for (const trace::TraceVerdict::Problem& problem : verdict.problems)
      EXPECT_FALSE(problem.fatal) << verdict.consumer << ": " << problem.what << problem.first;
  EXPECT_GT(write_perfetto(directory.path / "t.pftrace", run.host()).events, kernels);
}

TEST(ClockReport, SeesAFallUnderLoadAlone) {
  const auto at = [](std::int64_t ms, int mhz, std::uint64_t throttle) {
    return CardState{.time_ns = ms * 1'000'000, .sm_mhz = mhz, .throttle = throttle};
  };
  const std::vector<CardState> steady{at(0, 345, CardState::idle), at(10, 1980, 0), at(20, 1965, 0),
                                      at(30, 345, CardState::idle)};
  EXPECT_FALSE(clock_report(steady).dropped());
  EXPECT_EQ(clock_report(steady).samples, 2);
  EXPECT_EQ(clock_warning(clock_report(steady)), "");
  const std::vector<CardState> falling{at(0, 1980, 0), at(10, 1755, CardState::power_cap),
                                       at(20, 1800, CardState::power_cap)};
  const ClockReport report = clock_report(falling);
  EXPECT_TRUE(report.dropped());
  EXPECT_EQ(report.first_mhz, 1980);
  EXPECT_EQ(report.last_mhz, 1800);
  EXPECT_EQ(report.min_mhz, 1755);
  EXPECT_THAT(clock_warning(report),
              ::testing::HasSubstr("from 1980 to 1755 MHz (its power limit)"));
}

}  // namespace
}  // namespace ridge
