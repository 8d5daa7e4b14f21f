#include "ridge/analyze/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/profile/node_stats.h"
#include "tests/analyze/small_training.h"
#include "tests/base/message_of.h"
#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

Json summary(const std::string& version, const std::vector<double>& seconds) {
  std::vector<double> half;
  for (const double s : seconds) half.push_back(s / 2);
  return {{"version", version},
          {"workload", "tiny_llama"},
          {"samples_per_step", 8},
          {"tokens_per_sample", 10},
          {"training_params", {{"mode", "training"}, {"dtype", "fp32"}}},
          {"work",
           {{"hidden_dim", 16},
            {"n_layers", 2},
            {"tie_embeddings", false},
            {"seq_len", 10},
            {"batch_size", 4},
            {"gradient_accumulation_steps", 2}}},
          {"performance_summary",
           {{"steps_left_out_of_averages", 1},
            {"step_seconds", seconds},
            {"forward_seconds", half},
            {"backward_seconds", half},
            {"optimizer_seconds", half},
            {"peak_memory_bytes", 3'000'000}}},
          {"system_info",
           {{"device", "cpu"}, {"cpu", "a cpu"}, {"threads", 2}, {"ridge_version", "0.1"}}}};
}

Json operator_row(const std::string& name, double ns, int calls, int read, int written) {
  return {{"name", name},
          {"total",
           {{"time_ns", ns}, {"calls", calls}, {"bytes_read", read}, {"bytes_written", written}}}};
}

// Over two steps.
Json operators(const std::vector<Json>& rows) {
  return {{"group_by", "operator"}, {"steps", 2}, {"rows", rows}};
}

const Json before_operators = operators(
    {operator_row("matmul", 8e6, 20, 3'000'000, 1'000'000), operator_row("silu", 2e6, 4, 500, 500),
     operator_row("add", 1e6, 2, 10, 10), operator_row("fill", 1e3, 2, 0, 10)});
const Json after_operators =
    operators({operator_row("matmul", 6e6, 10, 3'000'000, 1'000'000),
               operator_row("swiglu", 3e6, 2, 500, 500), operator_row("add", 1.5e6, 2, 10, 14),
               operator_row("fill", 2e3, 2, 0, 10)});

ComparedRun before() {
  return parse_run("a", "a", summary("v1", {9, 0.2, 0.2, 0.4}).dump(), before_operators.dump());
}
ComparedRun after() {
  return parse_run("b", "b", summary("v2", {9, 0.1, 0.1, 0.1}).dump(), after_operators.dump());
}

TEST(ParseRun, TakesASteadyStep) {
  const ComparedRun run = before();
  EXPECT_EQ(run.version, "v1");
  EXPECT_THAT(run.step, ElementsAre(0.2, 0.2, 0.4)) << "without the warm-up";
  EXPECT_EQ(run.samples, 8) << "of all accumulated batches";
  EXPECT_EQ(run.tokens, 80);
  EXPECT_TRUE(run.trains);
  EXPECT_EQ(run.kernels(), 14) << "of one step";
}

std::vector<std::string> names(const std::vector<OperatorChange>& changes) {
  std::vector<std::string> all;
  for (const OperatorChange& change : changes) all.push_back(change.name);
  return all;
}

TEST(OperatorChanges, AreSortedByTheirTime) {
  const auto changes = operator_changes(before(), after());
  EXPECT_THAT(names(changes), ElementsAre("swiglu", "matmul", "silu", "add", "fill"));
  EXPECT_EQ(changes[0].fate, OperatorFate::appeared);
  EXPECT_DOUBLE_EQ(changes[0].seconds(), 1.5e-3);
  EXPECT_FALSE(changes[0].before);
  EXPECT_EQ(changes[1].fate, OperatorFate::changed) << "fewer calls";
  EXPECT_DOUBLE_EQ(changes[1].seconds(), -1e-3);
  EXPECT_EQ(changes[2].fate, OperatorFate::vanished);
  EXPECT_DOUBLE_EQ(changes[2].seconds(), -1e-3);
  EXPECT_EQ(changes[3].fate, OperatorFate::changed) << "more bytes";
  EXPECT_EQ(changes[4].fate, OperatorFate::same) << "time alone always varies";
  EXPECT_DOUBLE_EQ(changes[1].before->bytes, 2e6);
}

TEST(Speedup, IsPairedWhereRunsTookTurns) {
  ComparedRun a = before(), b = after();
  EXPECT_DOUBLE_EQ(speedup_of(a, b).value, 2);
  EXPECT_FALSE(speedup_of(a, b).interval) << "three steps say too little";
  for (int round = 1; round <= 8; ++round) {
    a.round_seconds.push_back(3.0 * round);
    b.round_seconds.push_back(1.0 * round);
  }
  const Ratio paired = speedup_of(a, b);
  EXPECT_DOUBLE_EQ(paired.value, 3);
  EXPECT_DOUBLE_EQ(paired.interval.value().low, 3);
}

TEST(FirstDifference, IsTheWeightiest) {
  EXPECT_EQ(first_difference(before(), before()), "");
  Json other = summary("v1", {1, 1});
  other["system_info"]["threads"] = 8;
  const auto parse = [&] { return parse_run("b", "b", other.dump(), ""); };
  EXPECT_EQ(first_difference(before(), parse()), "threads is 2 in a and 8 in b");
  other["work"]["batch_size"] = 5;
  EXPECT_EQ(first_difference(before(), parse()), "batch_size is 4 in a and 5 in b");
  other["work"]["hidden_dim"] = 64;
  EXPECT_EQ(first_difference(before(), parse()), "hidden_dim is 16 in a and 64 in b");
}

TEST(ComparisonText, StandsSideBySide) {
  const std::string text = comparison_text({before(), after()});
  EXPECT_THAT(text, Not(HasSubstr("Not the same work")));
  EXPECT_THAT(text,
              ContainsRegex("a \\(v1\\) +\\| +40.0 \\| +200.000 \\| +100.000 \\| +100.000 \\| "
                            "+100.000 \\| +3.0 \\| +400.0 \\| +14 \\| 1.00x"));
  EXPECT_THAT(text, ContainsRegex("b \\(v2\\) +\\| +80.0 .*\\| +8 \\| 2.00x"));
  EXPECT_THAT(text, ContainsRegex("matmul +\\| changed +\\| +-1.000 \\| 4.000 -> 3.000 \\| "
                                  "+[0-9.]+ -> [0-9.]+ \\| +10 -> 5 "
                                  "\\| +2.00"));
  EXPECT_THAT(text, ContainsRegex("swiglu +\\| appeared \\| +\\+1.500 \\| +- -> 1.500"));
  EXPECT_THAT(text, ContainsRegex("\\(all\\) +\\| +\\| +-0.2"));
}

TEST(ComparisonText, ComparesWhatDiffersToo) {
  Json other = summary("v2", {1, 1, 1});
  other["work"]["n_layers"] = 3;
  const ComparedRun run = parse_run("b", "b", other.dump(), "");
  const std::string text = comparison_text({before(), run});
  EXPECT_TRUE(text.starts_with("Not the same work: n_layers is 2 in a and 3 in b\n"));
  EXPECT_THAT(text, AllOf(Not(HasSubstr("0.20x")), HasSubstr("there is no speed-up"),
                          HasSubstr("b has no operators.json")));
}

TEST(ComparisonJson, HoldsWhatTheTextSays) {
  const auto json = Json::parse(comparison_json({before(), after()}));
  EXPECT_EQ(json["runs"][1]["speedup"]["ratio"], 2);
  EXPECT_EQ(json["runs"][1]["speedup"]["low"], nullptr);
  EXPECT_EQ(json["runs"][1]["operators"][0]["operator"], "swiglu");
  EXPECT_EQ(json["runs"][1]["operators"][0]["change"], "appeared");
  EXPECT_EQ(json["runs"][1]["kernels"], 8);
  EXPECT_EQ(json["runs"][1]["samples_per_second"], 80);
  EXPECT_EQ(json["runs"][1]["first_difference"], nullptr);
}

std::string fault(const std::string& summary_text, const std::string& operators_text = "") {
  return message_of<FormatError>([&] { parse_run("a", "dir", summary_text, operators_text); });
}

TEST(ParseRun, NamesWhatIsWrong) {
  EXPECT_THAT(fault("{"), HasSubstr("dir/performance_summary.json is no JSON"));
  EXPECT_THAT(fault("[]"), HasSubstr("at version"));
  EXPECT_EQ(fault(summary("v1", {1, 1}).dump()), "nothing was thrown");
  // Without any one member, or with another kind of thing there.
  for (const char* pointer :
       {"/version", "/workload", "/samples_per_step", "/work", "/training_params/mode",
        "/performance_summary/step_seconds", "/performance_summary/peak_memory_bytes",
        "/performance_summary/steps_left_out_of_averages", "/system_info/threads"}) {
    const Json::json_pointer place(pointer);
    Json json = summary("v1", {1, 1});
    json[place] = Json::array({"x"});
    EXPECT_THAT(fault(json.dump()), HasSubstr(pointer + 1));
    json = summary("v1", {1, 1});
    json[place.parent_pointer()].erase(place.back());
    EXPECT_THAT(fault(json.dump()), HasSubstr(pointer + 1));
  }
  Json json = summary("v1", {1});  // all of it warm-up
  EXPECT_THAT(fault(json.dump()), HasSubstr("step_seconds"));
  json = summary("v1", {1, -1});
  EXPECT_THAT(fault(json.dump()), HasSubstr("step_seconds"));
  const std::string sound = summary("v1", {1, 1}).dump();
  EXPECT_THAT(fault(sound, "x"), HasSubstr("dir/operators.json is no JSON"));
  Json rows = before_operators;
  rows["rows"][1]["total"].erase("calls");
  EXPECT_THAT(fault(sound, rows.dump()), HasSubstr("rows/1/total/calls"));
  rows = before_operators;
  rows["steps"] = 0;
  EXPECT_THAT(fault(sound, rows.dump()), HasSubstr("dir/operators.json"));
  rows = before_operators;
  rows["group_by"] = "module";
  EXPECT_THAT(fault(sound, rows.dump()), HasSubstr("group_by"));
}

TEST(ReadRun, WantsTheDirectoryOfARun) {
  const TemporaryDirectory directory;
  EXPECT_THROW(read_run(directory.path / "nowhere"), IoError);
  EXPECT_THROW(read_run(directory.path), IoError) << "empty";
  write_text_file(directory.path / "performance_summary.json", summary("v3", {1, 1}).dump());
  EXPECT_EQ(read_run(directory.path).version, "v3");
  EXPECT_FALSE(read_run(directory.path).has_operators);
  write_text_file(directory.path / "operators.json", before_operators.dump());
  EXPECT_TRUE(read_run(directory.path).has_operators);
}

TEST(OperatorUses, AreThoseOfOneStep) {
  SmallTraining training;
  training.record(3);
  Recording& recording = training.recorder.recording();
  for (Recording::NodeRun& run : recording.nodes) run.end_ns = run.begin_ns + 1'000 * run.step;
  const OperatorUses uses = operator_uses(recording);
  ASSERT_EQ(recording.steps.size(), 3u);
  double calls = 0, seconds = 0, bytes = 0, cost_of_all = 0;
  for (const auto& [name, use] : uses) {
    calls += use.calls;
    seconds += use.seconds;
    bytes += use.bytes;
  }
  for (const NodeStats& stats : node_stats(recording))
    cost_of_all += static_cast<double>(stats.cost.bytes());
  EXPECT_NEAR(calls, static_cast<double>(recording.nodes.size()) / 3, 1e-9);
  EXPECT_NEAR(seconds, calls * 2e-6, 1e-9) << "of 1, 2 and 3 microseconds";
  EXPECT_NEAR(bytes, cost_of_all, 1e-3);
  const auto by_name = [](const auto& a, const auto& b) { return a.first < b.first; };
  EXPECT_TRUE(std::ranges::is_sorted(uses, by_name));
}

TEST(TypicalUses, AreNotMovedByOneDisturbedStep) {
  const auto step = [](double seconds) {
    return OperatorUses{{"add", {1e-3, 2, 10}}, {"matmul", {seconds, 5, 100}}};
  };
  const OperatorUses uses = typical_uses({step(0.02), step(9), step(0.01)});
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[0].second.seconds, 1e-3);
  EXPECT_EQ(uses[1].second.seconds, 0.02);
  EXPECT_EQ(uses[1].second.calls, 5);
  EXPECT_EQ(uses[1].second.bytes, 100);
  EXPECT_TRUE(typical_uses({}).empty());
}

}  // namespace
}  // namespace ridge
