#include "ridge/profile/counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/perf_event.h>

#include <cerrno>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "ridge/ops/op.h"
#include "ridge/session/session.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ExplainRefusal, IsOneLineThatSaysWhatToSet) {
  EXPECT_THAT(explain_refusal(EACCES, 3), AllOf(HasSubstr("kernel.perf_event_paranoid is 3"),
                                                HasSubstr("sysctl kernel.perf_event_paranoid=2")));
  EXPECT_THAT(explain_refusal(EPERM, 2), AllOf(Not(HasSubstr("sysctl")), HasSubstr("PERFMON")));
  EXPECT_THAT(explain_refusal(ENOENT, 2), HasSubstr("virtual"));
  EXPECT_THAT(explain_refusal(ENOSYS, -2), HasSubstr("perf_event_open"));
  EXPECT_THAT(explain_refusal(EMFILE, 2), HasSubstr("ulimit -n"));
  EXPECT_THAT(explain_refusal(EIO, 2), HasSubstr("Input/output error"));
  for (const int error : {EACCES, EPERM, ENOENT, ENOSYS, EMFILE, EIO})
    EXPECT_THAT(explain_refusal(error, 4),
                AllOf(HasSubstr("no hardware counters: "), Not(HasSubstr("\n"))));
}

TEST(HardwareCounters, RefusesEventsThatNobodyCounts) {
  try {
    const HardwareCounters counters({{"nothing", PERF_TYPE_SOFTWARE, 12345}});
    FAIL() << "an event that is none was counted";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no hardware counters: "));
  }
}

TEST(HardwareEvents, KnowWhichProcessorsCountFlops) {
  const auto flops = [](const CpuModel& cpu) {
    std::vector<std::pair<std::uint64_t, double>> found;
    for (const CounterEvent& event : hardware_events(cpu))
      if (event.name == "flops") found.emplace_back(event.config, event.scale);
    return found;
  };
  using Found = std::vector<std::pair<std::uint64_t, double>>;
  EXPECT_EQ(flops({"AuthenticAMD", 23, 0x01}), Found{});               // Zen
  EXPECT_EQ(flops({"AuthenticAMD", 23, 0x31}), (Found{{0xf03, 1}}));   // Zen 2
  EXPECT_EQ(flops({"AuthenticAMD", 25, 0x21}), (Found{{0xf03, 1}}));   // Zen 3
  EXPECT_EQ(flops({"AuthenticAMD", 25, 0x11}), (Found{{0x1f03, 1}}));  // Zen 4
  EXPECT_EQ(flops({"AuthenticAMD", 25, 0x61}), (Found{{0x1f03, 1}}));
  EXPECT_EQ(flops({"GenuineIntel", 6, 0x8f}),  // Sapphire Rapids
            (Found{{0x2c7, 1}, {0x8c7, 4}, {0x20c7, 8}, {0x80c7, 16}}));
  EXPECT_EQ(flops({"GenuineIntel", 6, 0x3c}), Found{});  // Haswell
  EXPECT_EQ(flops({"", 0, 0}), Found{});
  EXPECT_EQ(hardware_events({"", 0, 0}).size(), 4u);
}

TEST(Extrapolate, AssumesTheRestToBeLikeWhatWasCounted) {
  EXPECT_EQ(extrapolate(100, 1000, 1000), 100);
  EXPECT_EQ(extrapolate(100, 1000, 250), 400);
  EXPECT_EQ(extrapolate(100, 1000, 0), 0);
  EXPECT_EQ(extrapolate(100, 0, 0), 0);
}

RunOptions small_options() {
  RunOptions o = small_llama({.hidden_dim = 64, .batch_size = 4, .seq_len = 64});
  o.resolve();
  return o;
}

// The kernel's own events, which virtual machines have too.
std::vector<CounterEvent> software_events() {
  return {{"nanoseconds", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
          {"microseconds", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, 1e-3, 5},
          {"both", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, 1, 5},
          {"both", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, 2, 7}};
}

std::unique_ptr<HardwareCounters> software_counters() {
  try {
    return std::make_unique<HardwareCounters>(software_events());
  } catch (const DeviceError&) {
    return nullptr;  // the system refuses
  }
}

TEST(HardwareCounters, CountEveryRunOfEveryNode) {
  CpuDevice device(3);
  Session session(small_options(), device);
  const auto counters = software_counters();
  if (!counters) GTEST_SKIP() << "perf_event_open is not allowed here";
  session.step();  // is not counted
  counters->attach(session.executor());
  for (int step = 0; step < 2; ++step) session.step();
  counters->detach(session.executor());
  session.step();  // nor this
  EXPECT_EQ(counters->names(), (std::vector<std::string>{"nanoseconds", "microseconds", "both"}));
  std::size_t with_kernel = 0;
  for (const Node& node : session.graph().nodes()) with_kernel += !only_renames(*node.op);
  const std::vector<HardwareCounters::NodeCounts> nodes = counters->node_counts();
  EXPECT_EQ(nodes.size(), with_kernel);
  std::vector<double> total(3);
  for (const HardwareCounters::NodeCounts& node : nodes) {
    EXPECT_EQ(node.calls, 2);
    for (std::size_t i = 0; i < 3; ++i) total[i] += node.counts[i];
  }
  // Three groups count the same, but are read one after the other.
  EXPECT_NEAR(total[1], total[0] / 1e3, 0.3 * total[0] / 1e3);
  EXPECT_NEAR(total[2], 3 * total[0], 0.3 * 3 * total[0]);
  EXPECT_EQ(counters->counted_fraction(), 1);
}

// The processor time of the whole process and of the calling thread, during nodes.
class ProcessorTime final : public Observer {
 public:
  void on_node_begin(const Graph&, NodeId) override {
    process -= now(CLOCK_PROCESS_CPUTIME_ID);
    thread -= now(CLOCK_THREAD_CPUTIME_ID);
  }
  void on_node(const Graph&, NodeId, Clock::time_point, Clock::time_point) override {
    process += now(CLOCK_PROCESS_CPUTIME_ID);
    thread += now(CLOCK_THREAD_CPUTIME_ID);
  }
  double process = 0, thread = 0;  // nanoseconds

 private:
  static double now(clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
  }
};

// Long products, so that all threads take part, however busy the machine is.
TEST(HardwareCounters, CountAllThreadsOfThePool) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {1536, 1024}});
  const Value w = graph.parameter("w", {1024, 1024}, Init::normal(1));
  graph.keep(project(project(x, w), w), "y");
  CpuDevice device(4);
  Executor executor(graph, device);
  executor.initialize(1);
  executor.fill_zero(x);
  executor.run();
  const auto counters = software_counters();
  if (!counters) GTEST_SKIP() << "perf_event_open is not allowed here";
  ProcessorTime time;
  counters->attach(executor);
  executor.observe(time);
  for (int i = 0; i < 4; ++i) executor.run();
  executor.forget(time);
  counters->detach(executor);
  double counted = 0;
  for (const HardwareCounters::NodeCounts& node : counters->node_counts())
    counted += node.counts[0];
  EXPECT_NEAR(counted, time.process, 0.1 * time.process);
  EXPECT_LT(time.thread, 0.8 * time.process) << "the pool took no part: this test shows nothing";
}

// A graph of three nodes, two of the same operator in different phases.
TEST(CounterReport, SumsNodesOfAnOperatorPhaseByPhase) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {4}});
  const Value y = scale(x, 2.0f);
  const Value z = scale(y, 3.0f);
  {
    const PhaseScope backward(graph, Phase::backward);
    graph.keep(scale(silu(z), 1.0f), "end");
  }
  const std::vector<HardwareCounters::NodeCounts> nodes{{0, 2, {100, 250, 10, 4}},
                                                        {1, 2, {50, 50, 10, 1}},
                                                        {2, 2, {1e6, 1000, 0, 0}},
                                                        {3, 2, {7, 7, 7, 7}}};
  const CounterReport report = report_counters(
      graph, {"cycles", "instructions", "cache references", "cache misses"}, nodes, 0.5);
  ASSERT_EQ(report.rows.size(), 3u);
  EXPECT_EQ(report.rows[0].op, "silu");
  EXPECT_EQ(report.rows[1].op, "scale");
  EXPECT_EQ(report.rows[1].phase, Phase::forward);
  EXPECT_EQ(report.rows[1].calls, 4);
  EXPECT_EQ(report.rows[1].counts, (std::vector<double>{150, 300, 20, 5}));
  EXPECT_EQ(report.rows[2].phase, Phase::backward);

  const std::string text = counters_text(report);
  EXPECT_THAT(text, HasSubstr("2.00"));    // instructions per cycle of scale
  EXPECT_THAT(text, HasSubstr("25.0 %"));  // of its references miss
  EXPECT_THAT(text, HasSubstr("counted for 50 %"));

  const auto json = nlohmann::json::parse(counters_json(report));
  EXPECT_EQ(json["operators"][1]["cache_misses"], 5);
  EXPECT_EQ(json["operators"][1]["calls"], 4);
  EXPECT_EQ(json["counted_fraction"], 0.5);
}

TEST(CounterReport, IsEmptyIfNothingRan) {
  const Graph graph;
  const CounterReport report = report_counters(graph, {"cycles"}, {}, 1);
  EXPECT_TRUE(report.rows.empty());
  EXPECT_EQ(nlohmann::json::parse(counters_json(report))["operators"].size(), 0u);
}

}  // namespace
}  // namespace ridge
