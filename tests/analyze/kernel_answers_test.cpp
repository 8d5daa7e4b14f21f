#include "ridge/analyze/kernel_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ridge/ops/matmul.h"
#include "ridge/ops/silu.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t us = 1000;

// Two passes of a product and two SiLUs. In the second pass the product takes 300 us in place of
// 200, and nothing runs for 40 us before the last SiLU.
struct TwoPasses {
  Graph graph;
  Recording recording;

  TwoPasses() {
    const Value a = graph.input("a", {DType::f32, {64, 64}});
    Value y;
    {
      const Scope scope(graph, "first");
      y = matmul(a, a);
    }
    const Scope scope(graph, "second");
    graph.keep(silu(silu(y)), "y");
    recording.graph = &graph;
    add_pass(0, 1, 200 * us, 5 * us);
    add_pass(1000 * us, 2, 300 * us, 40 * us);
  }

  void add_pass(std::int64_t begin, std::int32_t step, std::int64_t product, std::int64_t gap) {
    recording.nodes.push_back({0, step, begin, begin + product});
    recording.nodes.push_back({1, step, begin + product, begin + product + 50 * us});
    const std::int64_t last = begin + product + 50 * us + gap;
    recording.nodes.push_back({2, step, last, last + 50 * us});
    recording.phases.push_back({Phase::forward, step, begin, last + 50 * us});
    recording.steps.push_back({step, begin, last + 50 * us, 0.0});
  }
};

TEST(KernelAnswers, TellLongLaunchesGapsAndSpread) {
  const TwoPasses run;
  const KernelAnswers answers = kernel_answers(run.recording);
  EXPECT_EQ(answers.passes, 2);
  EXPECT_NEAR(answers.pass_seconds, (305e-6 + 440e-6) / 2, 1e-12);
  ASSERT_EQ(answers.longest.size(), 3u);
  EXPECT_EQ(answers.longest[0].name, "first: matmul");
  EXPECT_NEAR(answers.longest[0].mean, 250e-6, 1e-12);
  EXPECT_NEAR(answers.longest[0].share, 500.0 / 745, 1e-9);
  ASSERT_TRUE(answers.most_varied);
  EXPECT_EQ(answers.most_varied->name, "first: matmul");
  EXPECT_NEAR(answers.most_varied->spread(), 1.5, 1e-9);
  EXPECT_NEAR(answers.median_spread, 1, 1e-9) << "both SiLUs take the same each time";
  EXPECT_NEAR(answers.gaps, 0.5, 1e-12) << "5 us are no gap, and what lies between passes is none";
  EXPECT_NEAR(answers.longest_gap, 40e-6, 1e-12);
  EXPECT_EQ(answers.longest_gap_after, "second: silu");
  EXPECT_EQ(answers.busiest.name, "matmul");
  EXPECT_EQ(answers.busiest.calls, 1);

  EXPECT_THAT(answers_text(answers),
              AllOf(HasSubstr("0.5 a pass, together 20.0 µs, 5.4 % of it; the longest of 40.0 µs "
                              "between second: silu and second: silu"),
                    HasSubstr("none: the processor works in the memory that holds the data"),
                    HasSubstr("over 2 passes the longest takes 1.00 times the shortest, in the "
                              "median; first: matmul varies most, 200.0 µs to 300.0 µs")));
  EXPECT_THAT(trace_text(answers), AllOf(HasSubstr("What it shows, of 2 passes:"),
                                         HasSubstr("Long operations: first: matmul 250.0 µs (67.1 "
                                                   "%), second: silu")));
  EXPECT_EQ(json_of(answers)["longest"][0]["name"], "first: matmul");
}

TEST(KernelAnswers, CountCopiesOfADevice) {
  TwoPasses run;
  Recording& recording = run.recording;
  recording.on_device_time = true;
  recording.activity_names = {"gemm", "copy"};
  for (const Recording::NodeRun& node : recording.nodes)
    recording.activities.push_back({.kind = Activity::Kind::kernel,
                                    .node = node.node,
                                    .begin_ns = node.begin_ns,
                                    .end_ns = node.end_ns});
  recording.activities.push_back({.kind = Activity::Kind::copy,
                                  .name = 1,
                                  .begin_ns = 1440 * us,
                                  .end_ns = 1540 * us,
                                  .bytes = 1 << 20});
  const KernelAnswers answers = kernel_answers(recording);
  EXPECT_NEAR(answers.copies, 0.5, 1e-12);
  EXPECT_NEAR(answers.copy_seconds, 50e-6, 1e-12);
  EXPECT_NEAR(answers.gaps, 0.5, 1e-12);
  EXPECT_THAT(answers_text(answers),
              HasSubstr("0.5 a pass of 512.00 KiB in 50.0 µs, 13.4 % of it: a bottleneck"));
}

TEST(KernelAnswers, OfOnePassKnowNoSpread) {
  TwoPasses run;
  run.recording.nodes.resize(3);
  run.recording.steps.resize(1);
  run.recording.phases.resize(1);
  const KernelAnswers answers = kernel_answers(run.recording);
  EXPECT_FALSE(answers.most_varied);
  EXPECT_THAT(answers_text(answers), HasSubstr("one pass does not say"));
}

}  // namespace
}  // namespace ridge
