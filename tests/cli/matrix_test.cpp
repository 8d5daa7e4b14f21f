// Every workload can have everything done to it: each command once, on models so small that it
// takes seconds, with what it prints and the JSON that it writes.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/base/temporary_cache.h"
#include "tests/cli/tiny_runs.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Json = nlohmann::json;

struct Work {
  std::string name, network, mode, sample, flags;

  bool trains() const { return mode == "training"; }
  bool reads_tokens() const { return sample == "sequence"; }
  // For messages of GoogleTest.
  friend void PrintTo(const Work& work, std::ostream* out) { *out << work.name; }
};

std::vector<Work> all_work() {
  // Without batch norm, which over so few values has no gradient that f32 could be held to.
  const std::string image =
      " --network squeezenet1_1 --image-size 32 --batch-size 2 --threads 1 --warmup-steps 1";
  const std::string tokens = " --network tiny_llama" + tiny;
  return {{"LlamaTraining", "tiny_llama", "training", "sequence", tokens + " --mode training"},
          {"LlamaInference", "tiny_llama", "inference", "sequence", tokens + " --mode inference"},
          {"VisionTraining", "squeezenet1_1", "training", "image",
           image + " --mode training --learning-rate 0.0001"},
          {"VisionInference", "squeezenet1_1", "inference", "image", image + " --mode inference"}};
}

// The document that a page of `ridge report` draws.
std::string data_of(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"profile\">";
  const std::size_t at = page.find(begin) + begin.size();
  return page.substr(at, page.find("</script>", at) - at);
}

class Matrix : public ::testing::TestWithParam<Work> {
 protected:
  // Runs a command on the workload; it succeeds and complains of nothing.
  ProgramResult done(const std::string& command, const std::string& more = "") {
    const ProgramResult result =
        sandbox_.run(words_of("ridge " + command + GetParam().flags + " " + more));
    EXPECT_EQ(result.exit_code, 0) << command << ": " << result.err << result.out;
    EXPECT_EQ(result.err, "") << command;
    return result;
  }
  // Training is run by `ridge train`, inference by `ridge bench`. Leaves the record in run.json.
  ProgramResult run_it(const std::string& more = "") {
    ProgramResult result;
    if (GetParam().trains()) {
      result = done("train", "--output-dir run " + more);
      sandbox_.write("run.json", sandbox_.read("run/performance_summary.json"));
    } else {
      result = done("bench", "--export-json run.json " + more);
    }
    return result;
  }
  Json json_in(const std::string& file) { return Json::parse(sandbox_.read(file)); }

  const Work& work() const { return GetParam(); }

  TemporaryCache cache_;
  Sandbox sandbox_;
};

TEST_P(Matrix, Runs) {
  const ProgramResult result = run_it("--num-steps 3");
  EXPECT_THAT(result.out, HasSubstr("Performance Summary:"));
  const Json record = json_in("run.json");
  EXPECT_EQ(record.at("schema"), "ridge-record-1");
  EXPECT_EQ(record.at("workload"), work().network);
  EXPECT_EQ(record.at("training_params").at("mode"), work().mode);
  const Json& summary = record.at("performance_summary");
  EXPECT_EQ(summary.at("outcome"), "completed");
  EXPECT_GT(summary.at("samples_per_second"), 0);
  EXPECT_EQ(record.at("sample"), work().sample);
  EXPECT_EQ(record.contains("tokens_per_sample"), work().reads_tokens());
  EXPECT_EQ(summary.contains("avg_tokens_per_second"), work().reads_tokens());
  EXPECT_EQ(result.out.find("oken") != result.out.npos, work().reads_tokens());
  EXPECT_GT(summary.at("flops_per_step").at("forward"), 0);
  EXPECT_EQ(summary.at("flops_per_step").at("backward") > 0, work().trains());
  const std::vector<double> losses = summary.at("losses");
  ASSERT_GE(losses.size(), 3u);
  EXPECT_EQ(losses.front() == losses.back(), !work().trains())
      << "weights change in training alone";
}

TEST_P(Matrix, IsPlannedToTheByte) {
  run_it("--num-steps 2 --version v1");
  const ProgramResult result = done("plan", "--version v1 --json");
  const Json plan = Json::parse(result.out);
  EXPECT_EQ(plan.at("network"), work().network);
  EXPECT_EQ(plan.at("mode"), work().mode);
  EXPECT_EQ(plan.at("peak_bytes"),
            json_in("run.json").at("performance_summary").at("peak_memory_bytes"));
  EXPECT_EQ(plan.at("backward").at("flops") > 0, work().trains());
  EXPECT_THAT(done("plan", "--version v1").out,
              AllOf(ContainsRegex("\nThe peak is in the [a-z]+ phase, at "),
                    HasSubstr("kernels; bytes count each operand")));
}

TEST_P(Matrix, IsProfiledAndReported) {
  const ProgramResult result =
      run_it("--num-steps 8 --profile --profile-steps 2 --profile-dir prof");
  EXPECT_THAT(result.out, HasSubstr("ridge report prof draws it"));
  const Json operators = json_in("prof/operators.json");
  EXPECT_FALSE(operators.empty());
  const Json nodes = json_in("prof/nodes.json");
  EXPECT_FALSE(nodes.empty());
  EXPECT_EQ(json_in("prof/performance_summary.json").at("workload"), work().network);
  EXPECT_EQ(json_in("prof/config.json").at("network"), work().network);
  for (const char* file : {"bottlenecks.json", "memory.json", "modules.json"})
    EXPECT_FALSE(json_in(std::string("prof/") + file).empty()) << file;
  const ProgramResult report = run(sandbox_, "ridge report prof");
  EXPECT_EQ(report.exit_code, 0) << report.err;
  EXPECT_THAT(report.out, HasSubstr("Wrote prof/report.html"));
  const std::string page = sandbox_.read("prof/report.html");
  EXPECT_THAT(page, AllOf(HasSubstr("<html"), HasSubstr(work().network), HasSubstr("</html>")));
  // The page's code is the same for all; what it says of this workload is in its data.
  const std::string data = data_of(page);
  EXPECT_THAT(data, HasSubstr(fmt::format("\"sample\":\"{}\"", work().sample)));
  EXPECT_EQ(data.find("Tiny LLaMA") != data.npos, work().reads_tokens());
  EXPECT_EQ(data.find("tokens") != data.npos, work().reads_tokens());
  EXPECT_EQ(data.find("seq_len") != data.npos, work().reads_tokens());
}

TEST_P(Matrix, IsVerified) {
  const std::string command = "--this-model --schedules v4 --dtypes fp32 --curve-steps 2";
  EXPECT_THAT(done("verify", command).out, HasSubstr("All 1 runs are right."));
  const Json runs = Json::parse(done("verify", command + " --json").out);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].at("failure"), "");
  EXPECT_LT(runs[0].at("loss_error"), 1e-6);
  EXPECT_EQ(runs[0].at("gradient_error") > 0, work().trains());
  for (const std::string what : {"loss", "logits", "gradient", "curve"})
    EXPECT_LE(runs[0].at(what + "_error"), runs[0].at(what + "_limit")) << what;
}

TEST_P(Matrix, IsAblated) {
  const ProgramResult result =
      done("ablate", "--from v1 --to v2 --rounds 1 --num-steps 1 --output-dir ablation");
  EXPECT_THAT(result.out, HasSubstr("Wrote ablation/ablation.html, ablation.svg"));
  EXPECT_TRUE(sandbox_.has("ablation/ablation.svg"));
  const Json ablation = json_in("ablation/ablation.json");
  EXPECT_EQ(ablation.at("options").at("network"), work().network);
  EXPECT_EQ(ablation.at("options").at("mode"), work().mode);
  const Json& rows = ablation.at("rows");
  ASSERT_GE(rows.size(), 2u);
  EXPECT_GT(rows.front().at("kernels"), rows.back().at("kernels"));
}

TEST_P(Matrix, IsCompared) {
  const std::string command = "--rounds 1 --num-steps 1";
  EXPECT_THAT(done("compare v1 v4", command).out,
              AllOf(ContainsRegex("\nv4 +\\|"), HasSubstr("From v1 to v4, by operator")));
  const Json json = Json::parse(done("compare v1 v4", command + " --json").out);
  const Json& runs = json.at("runs");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[1].at("setting").at("mode"), work().mode);
  EXPECT_EQ(runs[1].at("tokens_per_second").is_number(), work().reads_tokens());
  EXPECT_GT(runs[0].at("kernels"), runs[1].at("kernels"));
  EXPECT_GT(runs[1].at("speedup").at("ratio"), 0);
}

TEST_P(Matrix, HasItsPassesShown) {
  EXPECT_THAT(done("passes", "--version v4").out,
              AllOf(HasSubstr(work().trains() ? "One training step" : "One pass"),
                    ContainsRegex("\n\\(none\\) +\\|"), HasSubstr("Find nothing here: ")));
  const Json rows = Json::parse(done("passes", "--version v4 --json").out);
  EXPECT_EQ(rows.front().at("pass"), "(none)");
  EXPECT_LT(rows.back().at("kernels"), rows.front().at("kernels"));
}

TEST_P(Matrix, HasALargestBatch) {
  const ProgramResult result =
      done("bench", "--num-steps 1 --find-max-batch --max-batch-for 20MB --export-json max.json");
  EXPECT_THAT(result.out, HasSubstr("Largest batches of " + work().network + " in 19.07 MiB"));
  const Json row = json_in("max.json").at("rows").at(0);
  EXPECT_GT(row.at("batch_size"), 2);
  EXPECT_EQ(row.at("batch_size"), row.at("planned_batch_size"));
  EXPECT_EQ(row.at("measured_peak_bytes"), row.at("planned_peak_bytes"));
  EXPECT_LE(row.at("planned_peak_bytes"), 20'000'000);
  EXPECT_GT(row.at("next_peak_bytes"), 20'000'000);
}

TEST_P(Matrix, ResumesFromACheckpoint) {
  if (!work().trains()) GTEST_SKIP() << "inference has nothing to resume";
  done("train", "--num-steps 4 --output-dir whole");
  done("train", "--num-steps 2 --save-every 1 --output-dir half");
  ASSERT_TRUE(sandbox_.has("half/checkpoint.safetensors"));
  const ProgramResult rest = run(
      sandbox_, "ridge train --resume half/checkpoint.safetensors --num-steps 4 --output-dir rest");
  EXPECT_EQ(rest.exit_code, 0) << rest.err;
  const Json whole = json_in("whole/performance_summary.json").at("performance_summary");
  const Json resumed = json_in("rest/performance_summary.json").at("performance_summary");
  EXPECT_EQ(resumed.at("first_step"), 3);
  EXPECT_EQ(resumed.at("final_loss"), whole.at("final_loss")) << "to the bit";
}

INSTANTIATE_TEST_SUITE_P(Workloads, Matrix, ::testing::ValuesIn(all_work()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace ridge
