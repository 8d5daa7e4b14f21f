// What the card's tracing and counters say of a graph that runs on it.

#include <gmock/gmock.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/gpu/vendor/nvml.h"
#include "ridge/ops/matmul.h"
#include "ridge/ops/silu.h"
#include "ridge/ops/unary.h"
#include "ridge/profile/device_counters.h"
#include "ridge/profile/device_report.h"
#include "ridge/profile/recorder.h"
#include "ridge/run/executor.h"
#include "ridge/session/session.h"
#include "tests/base/temporary_cache.h"
#include "tests/gpu/gpu.h"

namespace ridge {
namespace {

// A chain of large and small kernels, one of them a library's.
struct Chain {
  static constexpr std::int64_t rows = 4096, columns = 8192;

  Graph graph;
  Executor executor;

  Chain(Device& device, bool planned)
      : executor(build(graph), device, {.planned = planned, .captured = planned}) {
    std::vector<float> data(rows * columns);
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<float>(i % 251) / 251.0f - 0.5f;
    executor.write(graph.value(0), std::span<const float>(data));
    for (int i = 0; i < 2; ++i) executor.run(Phase::forward);  // loads code, and captures
  }
  static Graph& build(Graph& graph) {
    const Value x = graph.input("x", {DType::f32, {rows, columns}});
    Value y = silu(scale(x, 2.0f));
    y = matmul(y, x, {.trans_b = true});
    graph.keep(scale(silu(y), 0.5f), "y");
    return graph;
  }
  void steps(Recorder& recorder, int count) {
    for (int step = 1; step <= count; ++step) {
      recorder.begin_step(step);
      executor.run(Phase::forward);
      executor.device().synchronize();
      recorder.end_step(0);
    }
  }
};

using GpuTracing = testing::GpuTest;
class GpuTracingOf : public testing::GpuTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Execution, GpuTracingOf, ::testing::Bool(), [](const auto& planned) {
  return planned.param ? "Captured" : "Launched";
});

TEST_P(GpuTracingOf, GivesEveryKernelToItsNode) {
  Chain chain(device(), GetParam());
  Recorder recorder;
  recorder.attach(chain.executor);
  chain.steps(recorder, 5);
  recorder.detach(chain.executor);
  const Recording& host = recorder.recording();
  EXPECT_EQ(host.replays.size(), GetParam() ? 5u : 0u);
  EXPECT_EQ(host.nodes.size(), 5 * 5u);
  EXPECT_EQ(host.activities_dropped, 0u);
  EXPECT_EQ(host.activities_out_of_order, 0u);
  std::map<std::uint32_t, int> kernels;
  for (const Activity& activity : host.activities) {
    if (activity.kind != Activity::Kind::kernel) continue;
    EXPECT_EQ(activity.in_graph, GetParam());
    ASSERT_LT(activity.run, host.nodes.size()) << host.activity_names[activity.name];
    EXPECT_EQ(host.nodes[activity.run].node, activity.node);
    EXPECT_GT(activity.registers, 0u);
    EXPECT_GT(theoretical_occupancy(host.processor, activity), 0);
    ++kernels[activity.run];
  }
  EXPECT_EQ(kernels.size(), host.nodes.size()) << "a node without a kernel";

  const Recording on_device = device_time(host);
  const auto report = device_report(on_device);
  ASSERT_TRUE(report.has_value());
  EXPECT_LT(report->unattributed_fraction(), 0.01);
  for (std::size_t i = 0; i < on_device.nodes.size(); ++i)
    EXPECT_GT(on_device.nodes[i].end_ns, on_device.nodes[i].begin_ns) << i;
  // 256 MB at no more than 5 TB/s, and at no less than a tenth of an H100's rate.
  const Recording::NodeRun& first = on_device.nodes.front();
  EXPECT_GT(first.end_ns - first.begin_ns, 50'000);
  EXPECT_LT(first.end_ns - first.begin_ns, 1'000'000);
}

TEST_P(GpuTracingOf, CanBeTakenAgain) {
  Chain chain(device(), GetParam());
  for (int i = 0; i < 2; ++i) {
    Recorder recorder;
    recorder.attach(chain.executor);
    chain.steps(recorder, 2);
    recorder.detach(chain.executor);
    const auto report = device_report(device_time(recorder.recording()));
    ASSERT_TRUE(report.has_value());
    EXPECT_GE(report->kernels, 10);
    EXPECT_LT(report->unattributed_fraction(), 0.01);
    chain.executor.run(Phase::forward);
  }
}

// The most kernels that ran at the same time. One that waits for another, as the second kernel of a
// node does, may be said to begin 100 ns before that one ends: the last microsecond does not count.
int most_at_once(const Recording& recording) {
  std::vector<std::pair<std::int64_t, int>> changes;  // an end counts before a begin
  for (const Activity& activity : recording.activities) {
    if (activity.kind != Activity::Kind::kernel) continue;
    changes.emplace_back(activity.begin_ns, 1);
    changes.emplace_back(std::max(activity.begin_ns, activity.end_ns - 1'000), -1);
  }
  std::ranges::sort(changes);
  int now = 0, most = 0;
  for (const auto& [time, change] : changes) most = std::max(most, now += change);
  return most;
}

// Wider steps failed where processes share a card (docs/internals/gpu.md). Products of few rows
// with long sums take a few thread blocks each, and long enough to meet each other.
TEST_F(GpuTracing, SeesNoMoreKernelsAtOnceThanTheDriverHasQueues) {
  constexpr std::int64_t rows = 32, columns = 32768;
  Graph graph;
  for (int i = 0; i < 40; ++i) {
    const Value x = graph.input("x" + std::to_string(i), {DType::f32, {rows, columns}});
    graph.keep(matmul(x, x, {.trans_b = true}), "y" + std::to_string(i));
  }
  Executor executor(graph, device(), {.planned = true, .captured = true, .concurrent = true});
  for (int i = 0; i < 2; ++i) executor.run(Phase::forward);
  Recorder recorder;
  recorder.attach(executor);
  recorder.begin_step(1);
  executor.run(Phase::forward);
  device().synchronize();
  recorder.end_step(0);
  recorder.detach(executor);
  const int most = most_at_once(recorder.recording());
  EXPECT_LE(most, 8);
  EXPECT_GE(most, 2);
}

// The smallest steps, where copies weigh most: tokens, targets and schedule go to the card in one,
// and the loss comes back in another, each on behalf of a node.
TEST_F(GpuTracing, OfTrainingLeavesNothingWithoutANode) {
  RunOptions options;
  options.version = "v4";
  options.dtype = "bf16";
  options.resolve();
  const TemporaryCache cache;
  Session session(options, device());
  for (int step = 0; step < 4; ++step) session.step();
  Recorder recorder;
  recorder.attach(session.executor());
  for (int step = 5; step <= 9; ++step) {
    recorder.begin_step(step);
    recorder.end_step(session.step().loss);
  }
  recorder.detach(session.executor());
  std::map<std::string, int> copies;
  for (const Activity& activity : recorder.recording().activities) {
    if (activity.kind != Activity::Kind::copy) continue;
    ++copies[recorder.recording().activity_names[activity.name]];
    ASSERT_NE(activity.node, no_node);
    EXPECT_EQ(activity.run, Activity::no_run);
  }
  EXPECT_EQ(copies, (std::map<std::string, int>{{"Memcpy DtoH", 5}, {"Memcpy HtoD", 5}}));
  const auto report = device_report(device_time(recorder.recording()));
  ASSERT_TRUE(report.has_value());
  EXPECT_LT(report->unattributed_fraction(), 0.001);
}

using GpuCounters = testing::GpuTest;

TEST_F(GpuCounters, CountsBytesOfEachNode) {
  Chain chain(device(), true);
  Recorder recorder;
  recorder.attach(chain.executor);
  chain.steps(recorder, 2);
  recorder.detach(chain.executor);
  std::unique_ptr<DeviceCounters> counters;
  try {
    counters = DeviceCounters::of(chain.executor);
  } catch (const DeviceError& error) {
    GTEST_SKIP() << error.what();
  }
  ASSERT_NE(counters, nullptr);
  for (std::size_t steps = 0; !counters->done(); ++steps) {
    ASSERT_LT(steps, 20u);
    counters->begin_step(chain.executor);
    chain.executor.run(Phase::forward);
    counters->end_step(chain.executor);
  }
  const auto ranges = counters->ranges();
  ASSERT_EQ(ranges.size(), 5u);
  const DeviceCounterReport report = report_device_counters(
      device_time(recorder.recording()), counters->metrics(), ranges, counters->passes());
  std::cout << device_counters_text(report);
  const auto first = std::ranges::find(ranges, std::uint64_t{0}, &RangeCounters::Range::id);
  ASSERT_NE(first, ranges.end());
  const double bytes = 4.0 * Chain::rows * Chain::columns;
  EXPECT_NEAR(first->values[0], bytes, 0.25 * bytes) << "read from DRAM";
  EXPECT_NEAR(first->values[1], bytes, 0.4 * bytes) << "written; some stays in the cache";
}

TEST_F(GpuCounters, ReadsTheCardsState) {
  const gpu::Nvml nvml;
  const int card = nvml.card_at(device().info().bus_id);
  EXPECT_NE(nvml.info(card).name, "");
  Chain chain(device(), true);
  gpu::CardSampler sampler(nvml, card, std::chrono::milliseconds(2));
  const auto begin = Clock::now();
  while (Clock::now() - begin < std::chrono::milliseconds(100)) {
    chain.executor.run(Phase::forward);
    device().synchronize();
  }
  const std::vector<CardState> states = sampler.stop();
  EXPECT_GE(states.size(), 10u);
  EXPECT_TRUE(std::ranges::is_sorted(states, {}, &CardState::time_ns));
  for (const CardState& state : states) {
    EXPECT_GT(state.sm_mhz, 100);
    EXPECT_GT(state.power_w, 10);
    EXPECT_GT(state.temperature_c, 5);
  }
}

}  // namespace
}  // namespace ridge
