#include "ridge/analyze/option_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ridge/analyze/bottlenecks.h"
#include "ridge/analyze/recorded_step.h"
#include "ridge/cpu/device.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

// A machine on which arithmetic takes no time beside memory, and in bf16 half of what it takes in
// fp32; and one on which it is the other way round.
Roof bound_by_memory() {
  return {.threads = 1,
          .peaks = {{ProductKind::f32, 1e15}, {ProductKind::bf16, 2e15}},
          .levels = {{"memory", 0, 1e9}},
          .launch_seconds = 0};
}
Roof bound_by_computing() {
  return {.threads = 1,
          .peaks = {{ProductKind::f32, 1e10}, {ProductKind::bf16, 2e10}},
          .levels = {{"memory", 0, 1e15}},
          .launch_seconds = 0};
}

// What a network would gain on a machine where each of its nodes takes twice its floor.
class Changes : public ::testing::Test {
 protected:
  std::vector<OptionChange> of(const std::string& network, const Roof& roof,
                               std::string_view version = "none") {
    RunOptions options = network_options(network, Use::inference, version, "fp32", 64);
    options.batch_size = 1;
    options.threads = 1;
    options.resolve();
    Session session(options, device_);
    std::vector<OptionChange> changes;
    record_step(session, [&](const Recording&, const Recording& seen) {
      const BottleneckReport report = analyze_bottlenecks(at_twice_the_floor(seen, roof), roof);
      step_seconds_ = report.step_seconds;
      changes = changes_of(options, device_, session.graph(), report);
    });
    return changes;
  }

  static Recording at_twice_the_floor(Recording recording, const Roof& roof) {
    std::int64_t now = 0;
    recording.steps[0].begin_ns = recording.phases[0].begin_ns = 0;
    for (Recording::NodeRun& run : recording.nodes) {
      const Graph& graph = *recording.graph;
      const double least = least_time(graph, graph.nodes()[run.node], roof, false).total();
      run.begin_ns = now;
      run.end_ns = now += static_cast<std::int64_t>(2e9 * least) + 1;
    }
    recording.steps[0].end_ns = recording.phases[0].end_ns = now;
    return recording;
  }

  static const OptionChange* named(const std::vector<OptionChange>& changes,
                                   std::string_view name) {
    const auto found = std::ranges::find(changes, name, &OptionChange::name);
    return found == changes.end() ? nullptr : &*found;
  }

  CpuDevice device_{1};
  double step_seconds_ = 0;
};

TEST_F(Changes, FollowTheBytesWhereMemorySetsThePace) {
  const std::vector<OptionChange> changes = of("mobilenet_v2", bound_by_memory());
  const OptionChange* const compiled = named(changes, "default");
  ASSERT_TRUE(compiled);
  EXPECT_EQ(compiled->flags, "--version default");
  // Each operator as far above its floor as now: as many times faster as there are fewer bytes.
  const RunOptions before = network_options("mobilenet_v2", Use::inference, "none", "fp32", 64);
  RunOptions one = before;
  one.batch_size = 1;
  const double bytes = static_cast<double>(plan_step(one, device_).cost.total().bytes());
  EXPECT_NEAR(compiled->seconds / step_seconds_,
              static_cast<double>(compiled->work.bytes()) / bytes, 0.01);
  EXPECT_LT(compiled->kernels, plan_step(one, device_).launches);
  // Weights are read once for the whole batch.
  EXPECT_TRUE(std::ranges::any_of(changes, [](const OptionChange& change) {
    return change.flags.starts_with("--batch-size");
  }));
  EXPECT_THAT(changes.front().name, HasSubstr("default + ")) << "all of them together";
  for (const OptionChange& change : changes) {
    EXPECT_LT(change.seconds_per_sample(), changes.back().seconds_per_sample() * (1 + 1e-12));
    EXPECT_GT(change.peak_bytes, 0u) << change.name;
    EXPECT_EQ(change.rounds_otherwise, change.flags.find("--dtype") != std::string::npos);
  }
}

TEST_F(Changes, OfALargerBatchAreNoneWhereComputingSetsThePace) {
  const std::vector<OptionChange> changes = of("resnet18", bound_by_computing());
  EXPECT_THAT(changes, Each(Field(&OptionChange::flags, Not(HasSubstr("--batch-size")))));
  const OptionChange* const bf16 = named(changes, "bf16");
  ASSERT_TRUE(bf16);
  EXPECT_NEAR(step_seconds_ / bf16->seconds, 2, 0.1) << "its products take half the time";
}

TEST_F(Changes, NameNothingThatIsThereAlready) {
  const std::vector<OptionChange> changes = of("squeezenet1_1", bound_by_memory(), "max-autotune");
  EXPECT_THAT(changes, Each(Field(&OptionChange::flags, Not(HasSubstr("--version")))));
  EXPECT_THAT(changes, Contains(Field(&OptionChange::name, "bf16")));
}

TEST_F(Changes, AreFindingsOfInferenceInPlaceOfBf16) {
  RunOptions options = network_options("squeezenet1_1", Use::inference, "none", "fp32", 64);
  Session session(options, device_);
  record_step(session, [&](const Recording&, const Recording& seen) {
    const BottleneckReport report = analyze_bottlenecks(
        seen, bound_by_memory(), alternatives_of(options, device_, session.graph()));
    const auto option = std::ranges::find(report.findings, Finding::Kind::option, &Finding::kind);
    ASSERT_NE(option, report.findings.end());
    EXPECT_THAT(option->text, HasSubstr("a sample in about "));
    EXPECT_THAT(option->text, HasSubstr("x as fast, if operators stay as near to their floors"));
    EXPECT_THAT(findings_text(report, 1), HasSubstr("  1. " + report.findings.front().text));
    for (const Finding& finding : report.findings)
      EXPECT_THAT(finding.text, Not(HasSubstr("kept for the backward pass")));
  });
}

}  // namespace
}  // namespace ridge
