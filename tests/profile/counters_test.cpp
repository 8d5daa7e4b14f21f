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
#include "ridge/train/trainer.h"

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

TrainOptions small_options() {
  TrainOptions o;
  o.vocab_size = 50;
  o.hidden_dim = 64;
  o.n_layers = 2;
  o.n_heads = 4;
  o.batch_size = 4;
  o.seq_len = 64;
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

// Counts processor time of all threads of two steps; nothing where the system refuses.
struct Counted {
  CpuDevice device;
  Trainer trainer;
  std::unique_ptr<HardwareCounters> counters;
  double node_nanoseconds = 0;

  // The processor time of the whole process during nodes.
  struct Clocked final : Observer {
    static double now() {
      timespec time{};
      ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
      return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
    }
    void on_node_begin(const Graph&, NodeId) override { begin = now(); }
    void on_node(const Graph&, NodeId, Clock::time_point, Clock::time_point) override {
      nanoseconds += now() - begin;
    }
    double begin = 0, nanoseconds = 0;
  };

  explicit Counted(int threads) : device(threads), trainer(small_options(), device) {
    try {
      counters = std::make_unique<HardwareCounters>(software_events());
    } catch (const DeviceError&) {
      return;
    }
    trainer.step();
    Clocked clock;
    trainer.executor().observe(clock);
    counters->attach(trainer.executor());
    for (int step = 0; step < 2; ++step) trainer.step();
    counters->detach(trainer.executor());
    trainer.executor().forget(clock);
    node_nanoseconds = clock.nanoseconds;
    trainer.step();  // is not counted any more
  }
};

TEST(HardwareCounters, CountEveryNodeOnEveryThread) {
  Counted counted(4);
  if (!counted.counters) GTEST_SKIP() << "perf_event_open is not allowed here";
  const std::vector<HardwareCounters::NodeCounts> nodes = counted.counters->node_counts();
  EXPECT_EQ(counted.counters->names(),
            (std::vector<std::string>{"nanoseconds", "microseconds", "both"}));
  std::size_t with_kernel = 0;
  for (const Node& node : counted.trainer.graph().nodes())
    with_kernel += !std::holds_alternative<Reshape>(node.op->variant());
  EXPECT_EQ(nodes.size(), with_kernel);
  double total = 0;
  for (const HardwareCounters::NodeCounts& node : nodes) {
    EXPECT_EQ(node.calls, 2);
    // Groups are read one after the other.
    EXPECT_NEAR(node.counts[1], node.counts[0] / 1e3, 5e3) << node.node;
    EXPECT_NEAR(node.counts[2], 3 * node.counts[0], 3e7) << node.node;
    total += node.counts[0];
  }
  EXPECT_GT(total, 0.6 * counted.node_nanoseconds);
  EXPECT_LT(total, 1.5 * counted.node_nanoseconds);
  EXPECT_EQ(counted.counters->counted_fraction(), 1);
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
