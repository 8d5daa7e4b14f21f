#include "ridge/study/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ridge/study/gate_history.h"
#include "ridge/study/gate_report.h"
#include "ridge/study/paced_run.h"
#include "ridge/study/recorded_baseline.h"
#include "tests/study/made_store.h"

namespace ridge {
namespace {

using testing::document_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MadeRun;
using testing::MadeStore;
using ::testing::Not;

using Names = std::vector<std::string>;

GateCriterion criterion(const std::string& metric, const Names& effects = {}) {
  return criteria_of(Names{metric}, effects).front();
}

GatedRun run_with(const nlohmann::json& losses, const std::string& dtype = "fp32") {
  nlohmann::ordered_json record = testing::record_of({.dtype = dtype});
  record["performance_summary"]["losses"] = losses;
  return gated_run({.record = record.dump()});
}

GateVerdict loss_verdict(const nlohmann::json& before, const nlohmann::json& after,
                         const std::string& dtype = "fp32") {
  const GatedRun a = run_with(before, dtype), b = run_with(after, dtype);
  return compare_counted(criterion("loss"), std::span(&a, 1), std::span(&b, 1)).verdict;
}

TEST(GateCriteria, AreReadFromNamesAndLeastEffects) {
  const auto all = criteria_of({}, Names{"time=1%", "memory=1MB", "loss=1e-3"});
  ASSERT_EQ(all.size(), 5u);
  EXPECT_DOUBLE_EQ(all[0].least_effect.value, 0.01);
  EXPECT_DOUBLE_EQ(all[1].least_effect.value, 1e6);
  EXPECT_FALSE(all[1].least_effect.relative);
  EXPECT_DOUBLE_EQ(all[4].least_effect.value, 1e-3);
  EXPECT_TRUE(criterion("memory", {"memory=5%"}).least_effect.relative);
  for (const char* bad : {"time", "time=", "time=x", "time=-1%", "time=0", "tim=1%", "forward=1%",
                          "kernels=1MB", "memory=1QB"})
    EXPECT_THROW(criteria_of({}, Names{bad}), UsageError) << bad;
  EXPECT_THROW(criteria_of(Names{"memroy"}, {}), UsageError);
}

TEST(Gate, ComparesCountsExactlyOrByTheLeastEffect) {
  const auto verdict = [](std::int64_t before, std::int64_t after, const Names& effects = {}) {
    const GatedRun a = gated_run(document_of({.peak_bytes = before})),
                   b = gated_run(document_of({.peak_bytes = after}));
    return compare_counted(criterion("memory", effects), std::span(&a, 1), std::span(&b, 1))
        .verdict;
  };
  EXPECT_EQ(verdict(1000, 1000), GateVerdict::fine);
  EXPECT_EQ(verdict(1000, 1001), GateVerdict::regression);
  EXPECT_EQ(verdict(1000, 900), GateVerdict::fine);
  EXPECT_EQ(verdict(1000, 1010, {"memory=1%"}), GateVerdict::fine);
  EXPECT_EQ(verdict(1000, 1011, {"memory=1%"}), GateVerdict::regression);
  EXPECT_EQ(verdict(1000, 1064, {"memory=64"}), GateVerdict::fine);
}

TEST(Gate, FindsNoRegressionInWhatDiffersFromRunToRun) {
  const std::vector<GatedRun> a{gated_run(document_of({.peak_bytes = 1000})),
                                gated_run(document_of({.peak_bytes = 1010}))},
      b{gated_run(document_of({.peak_bytes = 1005}))};
  const MetricResult result = compare_counted(criterion("memory"), a, b);
  EXPECT_EQ(result.verdict, GateVerdict::fine);
  EXPECT_EQ(result.note, "differs from run to run");
}

TEST(Gate, ComparesLossesStepByStep) {
  EXPECT_EQ(loss_verdict({7.0, 6.5}, {7.0, 6.5}), GateVerdict::fine);
  EXPECT_EQ(loss_verdict({7.0, 6.5}, {7.0, 6.5 + 1e-5}), GateVerdict::fine);
  EXPECT_EQ(loss_verdict({7.0, 6.5}, {7.01, 6.5}), GateVerdict::regression);
  EXPECT_EQ(loss_verdict({7.0, 6.5}, {6.99, 6.5}), GateVerdict::regression)
      << "also for the better";
  EXPECT_EQ(loss_verdict({7.0, 6.5}, {7.0, nullptr}), GateVerdict::regression) << "NaN";
  EXPECT_EQ(loss_verdict({7.0, 6.5}, {7.01, 6.5}, "bf16"), GateVerdict::fine);
  EXPECT_EQ(loss_verdict({7.0, 6.5}, {7.2, 6.5}, "bf16"), GateVerdict::regression);
  EXPECT_EQ(loss_verdict({7.0, 6.5, 6.0}, {7.0}), GateVerdict::fine) << "the steps that both took";
  EXPECT_EQ(loss_verdict(nlohmann::json::array(), {7.0}), GateVerdict::undecided);
}

MetricResult timed(double p_value, double change) {
  MetricResult metric = result_of(criterion("time"));
  metric.p_value = p_value;
  metric.change = change;
  metric.baseline = 0.1;
  metric.candidate = 0.1 * (1 + change);
  return metric;
}

// At 0.1: thresholds 0.025, 0.05, 0.075, 0.1.
TEST(Gate, ControlsFalseDiscoveriesOverAllCommands) {
  GateResult result{.baseline = {}, .candidate = {}, .commands = {}, .false_alarms = 0.1};
  for (const auto& [p, change] : {std::pair(0.02, 0.05), {0.06, 0.05}, {0.07, 0.01}, {0.9, 0.05}})
    result.commands.push_back({.command = "train", .metrics = {timed(p, change)}});
  control_false_discoveries(result);
  const auto verdict = [&](std::size_t i) { return result.commands[i].metrics[0].verdict; };
  EXPECT_EQ(verdict(0), GateVerdict::regression);
  EXPECT_EQ(verdict(1), GateVerdict::regression);
  EXPECT_EQ(verdict(2), GateVerdict::undecided) << "smaller than the least effect";
  EXPECT_EQ(verdict(3), GateVerdict::undecided);
  EXPECT_EQ(result.outcome(), GateResult::Outcome::regression);
}

TEST(GateReport, EscapesWhateverACommandHasInIt) {
  GateResult result{.baseline = "<&>\"|`", .candidate = "b", .commands = {}};
  result.commands.push_back(
      {.command = "train --data 'a<b>&\"c|d.txt'", .metrics = {timed(1e-9, 0.1)}});
  result.commands[0].metrics[0].verdict = GateVerdict::regression;
  result.commands.push_back(
      {.command = "bench\x1b[31m", .metrics = {}, .notes = {}, .fault = "it crashed: </testcase>"});
  EXPECT_EQ(result.outcome(), GateResult::Outcome::failed);
  const std::string xml = gate_junit(result);
  EXPECT_THAT(xml, HasSubstr("a&lt;b&gt;&amp;&quot;c|d.txt"));
  EXPECT_THAT(xml, HasSubstr("<failure type=\"regression\""));
  EXPECT_THAT(xml, HasSubstr("it crashed: &lt;/testcase&gt;"));
  EXPECT_THAT(xml, HasSubstr("tests=\"2\" failures=\"1\" errors=\"1\""));
  EXPECT_THAT(xml, Not(HasSubstr("\x1b")));
  EXPECT_THAT(gate_markdown(result), HasSubstr("a&lt;b>&amp;\"c\\|d.txt"));
  const auto json = nlohmann::json::parse(gate_json(result));
  EXPECT_EQ(json["outcome"], "failed");
  EXPECT_EQ(json["commands"][0]["metrics"][0]["verdict"], "regression");
  EXPECT_THAT(gate_text(result), HasSubstr("REGRESSION"));
}

TEST(GateCommands, AreSplitAsAShellDoes) {
  EXPECT_THAT(split_words("train  --data 'my file' --x=\"\" a'b'c\t"),
              ElementsAre("train", "--data", "my file", "--x=", "abc"));
  EXPECT_TRUE(split_words("  ").empty());
  EXPECT_THROW(split_words("train 'x"), UsageError);
  EXPECT_THROW(check_gated_command({}), UsageError);
  EXPECT_THROW(check_gated_command({"plan"}), UsageError);
  EXPECT_THROW(check_gated_command({"train", "--store=x"}), UsageError);
  EXPECT_NO_THROW(check_gated_command({"bench", "--network", "resnet18"}));
}

// What a candidate whose runs take so long is told against recorded runs.
CommandResult against(const std::vector<double>& recorded, double seconds, const Names& names = {},
                      const MadeRun& candidate = {}) {
  std::vector<RunDocument> runs;
  for (const double median : recorded) runs.push_back(document_of({.median_seconds = median}));
  int made = 0;
  const auto run = [&] {
    MadeRun next = candidate;
    next.median_seconds = seconds * (1 + 0.001 * ++made);
    return document_of(next);
  };
  return compare_with_records({.criteria = criteria_of(names, {})}, runs, run, [] { return 0.0; });
}

TEST(RecordedBaseline, NeedsSeveralRunsForTime) {
  const std::vector<double> few{0.1, 0.101}, many{0.1, 0.101, 0.099, 0.1005, 0.102};
  EXPECT_EQ(against(few, 0.2).metrics[0].verdict, GateVerdict::undecided);
  EXPECT_EQ(against(few, 0.2).metrics[1].verdict, GateVerdict::fine) << "memory needs one";
  EXPECT_EQ(against(many, 0.2).metrics[0].verdict, GateVerdict::regression);
  EXPECT_EQ(against(many, 0.09).metrics[0].verdict, GateVerdict::fine);
  EXPECT_EQ(against(many, 0.103).metrics[0].verdict, GateVerdict::undecided)
      << "some of what is seen may be the machine's";
}

TEST(RecordedBaseline, ComparesOnlyWhatRanTheSameOnTheSameMachine) {
  EXPECT_THROW(against({0.1}, 0.1, {}, {.batch_size = 4}), UsageError);
  const RunDocument here = document_of({}), there = document_of({.gpu = "NVIDIA H100"});
  EXPECT_EQ(comparable_runs(std::vector{here, there}, here, false).size(), 1u);
  EXPECT_EQ(comparable_runs(std::vector{here, there}, here, true).size(), 2u);
  EXPECT_THROW(comparable_runs(std::vector{there}, here, false), UsageError);
  const RunDocument bare{.record = here.record};  // performance_summary.json
  EXPECT_EQ(comparable_runs(std::vector{bare}, here, false).size(), 1u);
}

TEST(RecordedBaseline, IsNamedByTagOrCommit) {
  MadeStore made;
  made.store.add(document_of({.commit = "c0ffee1234"}, {"it's one"}));
  made.store.add(document_of({.commit = "c0ffee5678"}, {"two"}));
  EXPECT_EQ(runs_named(made.store, "it's one").size(), 1u);
  EXPECT_EQ(runs_named(made.store, "c0ffee").size(), 2u);
  EXPECT_EQ(runs_named(made.store, "c0ffee12").size(), 1u);
  EXPECT_THROW(runs_named(made.store, "0ffee1"), UsageError) << "not from its beginning";
  try {
    runs_named(made.store, "twoo");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean two?"));
  }
}

TEST(GateHistory, FindsTheNewestChangeForTheWorse) {
  MadeStore made;
  const auto add = [&](int runs, double seconds, std::int64_t begin, const std::string& commit,
                       std::int64_t batch = 8) {
    for (int i = 0; i < runs; ++i)
      made.store.add(document_of({.commit = commit,
                                  .created = begin + i,
                                  .batch_size = batch,
                                  .median_seconds = seconds * (1 + 0.002 * (i % 3))}));
  };
  add(12, 0.10, 1'790'000'000, "aaaa");
  add(12, 0.12, 1'790'001'000, "bbbb");
  add(12, 0.20, 1'790'000'500, "cccc", 16);  // another group between them
  const auto groups = history_of(made.store, {});
  ASSERT_EQ(groups.size(), 2u);
  ASSERT_EQ(groups[0].changes.size(), 1u);
  EXPECT_TRUE(groups[0].is_regression());
  EXPECT_EQ(groups[0].changes[0].commit_before, "aaaa");
  EXPECT_EQ(groups[0].changes[0].commit_after, "bbbb");
  EXPECT_NEAR(groups[0].changes[0].change, 0.2, 0.01);
  EXPECT_TRUE(groups[1].changes.empty());
  // More samples a second are better.
  EXPECT_TRUE(history_of(made.store, {.metric = "samples_per_second"})[0].is_regression());
  EXPECT_FALSE(history_of(made.store, {.least_effect = 0.5})[0].is_regression());
  EXPECT_THAT(history_text(groups, {}), HasSubstr("aaaa to bbbb"));
  EXPECT_EQ(nlohmann::json::parse(history_json(groups, {}))["outcome"], "regression");
  add(12, 0.09, 1'790'002'000, "dddd");
  EXPECT_FALSE(history_of(made.store, {})[0].is_regression()) << "it was repaired";
}

}  // namespace
}  // namespace ridge
