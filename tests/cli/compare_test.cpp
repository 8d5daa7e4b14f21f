// `ridge compare`, as its users run it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/tiny_runs.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Compare, RunsVersionsInTurn) {
  const Sandbox sandbox;
  const std::string command = "ridge compare v1 v3 --rounds 6 --num-steps 6";
  const ProgramResult result = run(sandbox, command + tiny);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(ContainsRegex("\nv1 +\\| .*1.00x"),
                    ContainsRegex("\nv3 +\\| .*x \\[[0-9.]+, [0-9.]+\\]"),
                    HasSubstr("paired by the rounds"), HasSubstr("From v1 to v3, by operator"),
                    ContainsRegex("\nadamw_all +\\| appeared"),
                    ContainsRegex("\nsoftmax +\\| vanished"), Not(HasSubstr("Not the"))));
  const auto json = nlohmann::json::parse(run(sandbox, command + " --json" + tiny).out);
  EXPECT_GT(json["runs"][0]["kernels"], json["runs"][1]["kernels"]);
  EXPECT_GT(json["runs"][1]["speedup"]["high"], 0);
}

TEST(Compare, ReadsRunsAndProfiles) {
  const Sandbox sandbox;
  const std::string train = "ridge train --num-steps 12 --profile --log-interval 100 ";
  ASSERT_EQ(run(sandbox, train + "--output-dir r1 --profile-dir p1" + tiny).exit_code, 0);
  ASSERT_EQ(
      run(sandbox, train + "--output-dir r2 --profile-dir p2 --version v2 --dtype bf16" + tiny)
          .exit_code,
      0);
  ProgramResult result = run(sandbox, "ridge compare p1 p2");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(
      result.out.starts_with("Not the same conditions: dtype is fp32 in p1 and bf16 in p2\n"));
  EXPECT_THAT(result.out, AllOf(HasSubstr("p2 (v2)"), ContainsRegex("\nadamw +\\| vanished")));
  result = run(sandbox, "ridge compare r1 p2");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("r1 has no operators.json; run it with --profile"));
  result = run(sandbox, "ridge compare p1 v2 --rounds 1 --num-steps 6" + tiny);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(Not(HasSubstr("Not the same work")), HasSubstr("\nv2 ")));
}

// A summary whose steps all take so many seconds.
void make_run(const Sandbox& sandbox, const std::string& name, double seconds) {
  auto json = nlohmann::json::parse(sandbox.read("r/performance_summary.json"));
  json["performance_summary"]["step_seconds"] = std::vector<double>(10, seconds);
  std::filesystem::create_directory(sandbox.path(name));
  sandbox.write(name + "/performance_summary.json", json.dump());
}

TEST(Compare, FailsOnARegression) {
  const Sandbox sandbox;
  ASSERT_EQ(run(sandbox, "ridge train --num-steps 10 --output-dir r" + tiny).exit_code, 0);
  make_run(sandbox, "base", 1.0);
  make_run(sandbox, "slow", 1.1);
  EXPECT_EQ(run(sandbox, "ridge compare base slow").exit_code, 0);
  EXPECT_EQ(run(sandbox, "ridge compare base slow --fail-above 12").exit_code, 0);
  EXPECT_EQ(run(sandbox, "ridge compare slow base --fail-above 0").exit_code, 0);
  const ProgramResult result = run(sandbox, "ridge compare base slow --fail-above 5");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err,
              HasSubstr("slow is slower than base by more than 5 %: by 10.0 % at least"));
  EXPECT_THAT(result.out, HasSubstr("0.91x")) << "the tables are printed all the same";
}

TEST(Compare, SaysWhatIsNoRun) {
  const Sandbox sandbox;
  std::filesystem::create_directory(sandbox.path("empty"));
  std::filesystem::create_directory(sandbox.path("corrupt"));
  sandbox.write("corrupt/performance_summary.json", "{\"version\": \"v1\"");
  for (const auto& [runs, exit_code, message] :
       {std::tuple{"", 2, "name two or more"},
        {"v1", 2, "name two or more"},
        {"v1 nowhere", 1, "nowhere is neither a version, nor a compile mode, nor a directory"},
        {"v1 empty", 1, "empty has no performance_summary.json"},
        {"v1 corrupt", 1, "corrupt/performance_summary.json is no JSON"},
        {"v1 v2 --version v3", 2, "leave out --version"},
        {"v1 v2 --rounds 0", 2, "--rounds is 0"},
        {"v1 v2 --fail-above -1", 2, "--fail-above is -1"}}) {
    const ProgramResult result = run(sandbox, std::string("ridge compare ") + runs + tiny);
    EXPECT_EQ(result.exit_code, exit_code) << runs;
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_EQ(lines_of(result.err).size(), 1u) << result.err;
    EXPECT_THAT(result.out, IsEmpty());
  }
}

}  // namespace
}  // namespace ridge
