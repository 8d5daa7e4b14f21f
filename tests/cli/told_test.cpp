// What the program tells of passes, times and memory is so: the same quantity has one name and one
// value wherever it is told, and what is not known is not told.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ridge/passes/passes.h"
#include "tests/base/temporary_cache.h"
#include "tests/cli/tiny_runs.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

const std::string small =
    " --hidden-dim 32 --n-layers 2 --n-heads 2 --vocab-size 64 --seq-len 32 --batch-size 2 "
    "--threads 1";
const std::string network =
    " --network squeezenet1_1 --image-size 32 --batch-size 2 --threads 1 --warmup 1";

class Told : public ::testing::Test {
 protected:
  std::string out_of(const std::string& command) {
    const ProgramResult result = run(sandbox_, "ridge " + command);
    EXPECT_EQ(result.exit_code, 0) << command << ": " << result.err;
    return result.out;
  }
  Json json_of(const std::string& command) { return Json::parse(out_of(command)); }
  Json json_in(const std::string& file) { return Json::parse(sandbox_.read(file)); }

  TemporaryCache cache_;
  Sandbox sandbox_;
};

TEST_F(Told, ATrainingExportsTheRecordThatItLeaves) {
  const std::string out = out_of("train --num-steps 2 --ranks 2 --export-json run.json" + small);
  EXPECT_THAT(out, HasSubstr("Wrote run.json"));
  EXPECT_EQ(sandbox_.read("run.json"), sandbox_.read("output/performance_summary.json"));
}

TEST_F(Told, AllPassesAreListedWithoutFlags) {
  const std::string text = out_of("passes");
  const Json json = json_of("passes --json");
  EXPECT_EQ(json.size(), passes().size());
  for (const Pass& pass : passes()) {
    EXPECT_THAT(text, HasSubstr("\n" + std::string(pass.name) + " ")) << "a row of its own";
    EXPECT_THAT(text, HasSubstr(std::string(pass.description)));
  }
}

// A pass finds nothing where the step after it is the same in all that it is told by. Some change
// one figure alone: norm-results the peak, cross-entropy-in-place what is written in place.
TEST_F(Told, APassThatChangesAnythingIsNotSaidToFindNothing) {
  const std::string command = "passes --version v4 --device cpu" + small;
  const std::string text = out_of(command);
  const std::size_t begin = text.find("\nFind nothing here: ") + 1;
  const std::string nothing = text.substr(begin, text.find('\n', begin) - begin) + ",";
  const Json rows = json_of(command + " --json");
  std::map<std::string, std::vector<std::string>> changed;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const Pass& pass = pass_named(rows[i].at("pass").get<std::string>());
    if (pass.stage == Stage::run) continue;  // which has a row at any rate
    std::vector<std::string>& figures = changed[std::string(pass.name)];
    for (const char* figure :
         {"kernels", "flops", "causal_flops", "bytes", "in_place", "peak_bytes"})
      if (rows[i].at(figure) != rows[i - 1].at(figure)) figures.push_back(figure);
    EXPECT_EQ(nothing.find(fmt::format(" {},", pass.name)) != nothing.npos, figures.empty())
        << pass.name << " changes " << ::testing::PrintToString(figures);
    EXPECT_EQ(text.find(fmt::format("\n{} ", pass.name)) != text.npos, !figures.empty())
        << pass.name << " has a row";
  }
  EXPECT_THAT(changed.at("norm-results"), ElementsAre("peak_bytes"));
  EXPECT_THAT(changed.at("cross-entropy-in-place"), ElementsAre("in_place"));
  EXPECT_THAT(changed.at("unread-rows"), IsEmpty());
}

TEST_F(Told, APassThatIsAskedForInVainIsNamedWithTheReason) {
  const std::string asked = " --enable-pass captured-launches" + small;
  const std::string told = "The pass captured-launches is left out: it is for a GPU";
  EXPECT_THAT(out_of("train --num-steps 1" + asked), HasSubstr(told));
  EXPECT_THAT(out_of("train --num-steps 1 --version v4" + small), Not(HasSubstr(told)));
  EXPECT_THAT(out_of("bench --warmup 1 --iterations 1 --network squeezenet1_1 --image-size 32 "
                     "--batch-size 2 --threads 1 --enable-pass captured-launches"),
              HasSubstr(told));
  EXPECT_THAT(out_of("passes" + asked), HasSubstr("Left out, for a GPU: captured-launches"));
}

// A finding advises a pass: that pass does what the finding promises, as ridge passes tells it. How
// many findings are worth telling depends on the times, which a busy machine spoils: a profile with
// few of them is made again.
TEST_F(Told, FindingsPromiseWhatTheirPassesDo) {
  const std::int64_t before = json_of("passes --version v1 --json" + small)[0].at("kernels");
  std::size_t advised = 0;
  for (int attempt = 0; attempt < 3 && advised <= 5; ++attempt) {
    advised = 0;
    out_of("train --num-steps 5 --profile --profile-dir p" + small);
    const Json bottlenecks = json_in("p/bottlenecks.json");
    for (const Json& finding : bottlenecks.at("findings")) {
      if (finding.at("kind") != "rewrite") continue;
      const std::string text = finding.at("text"), name = finding.at("name");
      if (!text.ends_with("(--enable-pass " + name + ")")) continue;
      const Json after = json_of("passes --version v1 --json --enable-pass " + name + small).back();
      EXPECT_EQ(finding.at("kernels_saved"), before - after.at("kernels").get<std::int64_t>())
          << text;
      ++advised;
    }
  }
  EXPECT_GT(advised, 5u);
}

TEST_F(Told, AShortProfileIsOfWarmStepsAlone) {
  out_of("train --num-steps 5 --profile --profile-dir p" + small);
  EXPECT_TRUE(sandbox_.has("p/trace_step_4_5.json")) << "after three to warm up";
  const Json operators = json_in("p/operators.json");
  EXPECT_EQ(operators.at("first_step"), 4);
  EXPECT_EQ(operators.at("last_step"), 5);
}

TEST_F(Told, TheFirstProfileHasFindings) {
  out_of("train --num-steps 5 --profile --profile-dir p" + small);
  const Json bottlenecks = json_in("p/bottlenecks.json");
  EXPECT_FALSE(bottlenecks.at("findings").empty());
  EXPECT_THAT(bottlenecks.at("notes").dump(), HasSubstr("measured in a hurry"));
  const auto machine = cache_.path() / "ridge" / "machine.json";
  ASSERT_TRUE(std::filesystem::exists(machine));
  const auto written = std::filesystem::last_write_time(machine);
  out_of("bench --iterations 4 --flops-prof-step 2" + network);
  EXPECT_EQ(std::filesystem::last_write_time(machine), written)
      << "all runs are held against the same ceilings";
}

TEST_F(Told, TheShareOfTheVendorsPeakIsThereOnceThatIsKnown) {
  const std::string train = "train --num-steps 5 --profile --profile-dir p" + small;
  out_of(train);
  EXPECT_TRUE(json_in("p/bottlenecks.json").at("vendor_mfu").is_null());
  EXPECT_THAT(out_of("roofline --profile p"), Not(HasSubstr("vendor")));
  EXPECT_THAT(out_of("roofline --profile p --peak-tflops 0.5"),
              ContainsRegex("\nAll operators together: [0-9.]+ % of the vendor's peak\n"));
  out_of("roofline --device cpu --threads 1 --seconds 0.3 --peak-tflops 0.5");
  out_of(train);
  const double share = json_in("p/bottlenecks.json").at("vendor_mfu");
  EXPECT_GT(share, 0);
  EXPECT_LT(share, 1);
}

TEST_F(Told, TheOverheadOfRecordingHasAnIntervalOrIsNotKnown) {
  EXPECT_THAT(out_of("bench --iterations 20 --autograd-profiler" + network),
              ContainsRegex("\nOverhead of recording: not known: too few steps for an interval "
                            "\\(.* over 5 recorded steps, .* over 1[0-9] others; medians\\)"));
  EXPECT_THAT(
      out_of("bench --iterations 30 --autograd-profiler --profile-steps 8" + network),
      ContainsRegex("\nOverhead of recording: [+-].* %, with 95 % between [+-].* and [+-]"));
}

TEST_F(Told, TheAverageOfMemoryGrowsWithTheBatch) {
  double last = 0;
  for (const int batch : {4, 8, 16}) {
    out_of("train --num-steps 4 --output-dir run" + small + " --seq-len 64 --batch-size " +
           std::to_string(batch));
    const Json summary = json_in("run/performance_summary.json").at("performance_summary");
    const double average = summary.at("avg_memory_mb");
    EXPECT_GT(average, last * 1.3) << batch;
    EXPECT_LT(average, summary.at("peak_memory_mb"));
    last = average;
  }
}

// A plan and a profile tell of the same bytes at the peak, under the same names where they have one
// in common; what the plan calls intermediates are a profile's activations and temporaries.
TEST_F(Told, APlanAndAProfileAgreeOnWhatMemoryIsFor) {
  const Json plan = json_of("plan --json" + small);
  const Json& planned = plan.at("bytes_at_peak");
  out_of("train --num-steps 5 --profile --profile-dir p" + small);
  const Json memory = json_in("p/memory.json"), held = memory.at("peak").at("bytes_by_group");
  EXPECT_EQ(memory.at("peak_bytes"), plan.at("peak_bytes"));
  for (const char* name : {"parameters", "gradients", "optimizer", "inputs", "workspace"})
    EXPECT_EQ(planned.at(name), held.at(name)) << name;
  EXPECT_EQ(
      planned.at("intermediates").get<std::int64_t>(),
      held.at("activations").get<std::int64_t>() + held.at("temporaries").get<std::int64_t>());
  EXPECT_FALSE(planned.contains("activations"));
  EXPECT_THAT(out_of("plan" + small), Not(ContainsRegex("\n +Activations")));
}

TEST_F(Told, AllMemoryOfABenchmarkIsForSomething) {
  const std::string out = out_of("bench --iterations 2 --export-json b.json" + network);
  EXPECT_THAT(out, ContainsRegex("in MB: parameters [0-9.]+, packed weights [0-9.]+, "));
  const Json summary = json_in("b.json").at("performance_summary");
  std::int64_t sum = 0;
  for (const auto& [use, bytes] : summary.at("memory_at_peak_bytes").items())
    sum += bytes.get<std::int64_t>();
  EXPECT_EQ(sum, summary.at("peak_memory_bytes"));
}

TEST_F(Told, UnsteadyTimesAreWarnedOf) {
  out_of("train --num-steps 8 --output-dir run" + small);
  const std::string out = out_of("train --num-steps 8 --output-dir run" + small);
  const Json summary = json_in("run/performance_summary.json").at("performance_summary");
  EXPECT_EQ(out.find("doubtful The times vary by ") != out.npos,
            summary.at("variation").get<double>() > 0.025);
}

TEST_F(Told, TrainingsProfileIsOfSteps) {
  const std::string command =
      "bench --iterations 8 --autograd-profiler --flops-prof-step 2" + network;
  const std::string training = out_of(command + " --mode training"), inference = out_of(command);
  EXPECT_THAT(training,
              AllOf(HasSubstr("take longest, in one step?"), HasSubstr("CPU memory, in one step:"),
                    HasSubstr("How much work is a step?"), Not(HasSubstr(" a pass")),
                    Not(HasSubstr("one pass"))));
  EXPECT_THAT(inference,
              AllOf(HasSubstr("take longest, in one pass?"), HasSubstr("CPU memory, in one pass:"),
                    HasSubstr("How much work is a pass?")));
}

// The table's convolutions add up to the answer's share.
TEST_F(Told, ConvolutionsHaveOneShare) {
  const std::string out =
      out_of("bench --iterations 8 --autograd-profiler --mode training" + network);
  double sum = 0, answer = -1;
  const std::vector<std::string> lines = lines_of(out);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::vector<std::string> words = words_of(lines[i]);
    if (lines[i].starts_with("conv2d") && words.size() > 7 && words[2] != "Allocations" &&
        words[8] == "%")
      sum += std::stod(words[7]);
    if (lines[i] == "What share have convolutions?") {
      const std::string& text = lines.at(i + 1);
      const std::size_t end = text.find(" %");
      answer = std::stod(text.substr(text.rfind(' ', end - 1)));
    }
  }
  EXPECT_GT(sum, 1);
  EXPECT_NEAR(sum, answer, 0.16) << "three shares, each rounded to 0.1";
}

TEST_F(Told, MistakesComeBeforeTheConfiguration) {
  const ProgramResult result =
      run(sandbox_, "ridge bench --find-max-batch --max-batch-for many" + network);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("'many' is no amount of memory"));
}

}  // namespace
}  // namespace ridge
