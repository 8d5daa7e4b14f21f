// `ridge compare` on runs of different work, too short runs, and runs of networks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/tiny_runs.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class CompareRuns : public ::testing::Test {
 protected:
  void make(const std::string& name, const std::string& flags) {
    const ProgramResult result =
        run(sandbox_, "ridge train --num-steps 10 --output-dir " + name + tiny + flags);
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  // A run like another one whose steps all took so long.
  void make_like(const std::string& other, const std::string& name, std::size_t steps,
                 double seconds) {
    auto json = nlohmann::json::parse(sandbox_.read(other + "/performance_summary.json"));
    json["performance_summary"]["step_seconds"] = std::vector<double>(steps, seconds);
    std::filesystem::create_directory(sandbox_.path(name));
    sandbox_.write(name + "/performance_summary.json", json.dump());
  }
  ProgramResult compare(const std::string& runs) { return run(sandbox_, "ridge compare " + runs); }

  Sandbox sandbox_;
};

TEST_F(CompareRuns, ExitCodesTellSlowerFromUndecided) {
  make("r", "");
  make_like("r", "fast", 10, 0.010);
  make_like("r", "slow", 10, 0.012);
  make_like("r", "short", 3, 0.012);
  EXPECT_EQ(compare("fast slow --fail-above 5").exit_code, 1);
  EXPECT_EQ(compare("fast slow --fail-above 50").exit_code, 0);
  EXPECT_EQ(compare("slow fast --fail-above 5").exit_code, 0);
  const ProgramResult undecided = compare("fast short --fail-above 5");
  EXPECT_EQ(undecided.exit_code, 3);
  EXPECT_THAT(undecided.err, HasSubstr("too few steps"));
  for (const char* runs : {"fast slow short", "fast short slow"}) {
    const ProgramResult both = compare(std::string(runs) + " --fail-above 5");
    EXPECT_EQ(both.exit_code, 1) << runs << ": that one is slower is decided";
    EXPECT_THAT(both.err, AllOf(HasSubstr("slow is slower than fast by more than 5 %"),
                                HasSubstr("too few steps of fast or short")));
  }
}

TEST_F(CompareRuns, HaveNoSpeedUpOverOtherWork) {
  make("two", " --batch-size 2");
  make("four", " --batch-size 4");
  const ProgramResult result = compare("two four");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("Not the same work: batch_size is 2 in two and 4 in four"),
                    HasSubstr("there is no speed-up"), ContainsRegex("\nfour \\(v1\\) .*\\| -\n")));
  EXPECT_TRUE(
      nlohmann::json::parse(compare("two four --json").out)["runs"][1]["speedup"].is_null() ||
      nlohmann::json::parse(compare("two four --json").out)["runs"][1]["speedup"]["ratio"]
          .is_null());
  const ProgramResult judged = compare("two four --fail-above 5");
  EXPECT_EQ(judged.exit_code, 2);
  EXPECT_THAT(judged.err, HasSubstr("does other work: batch_size is 2 in two and 4 in four"));
}

TEST_F(CompareRuns, AreOfNetworksToo) {
  const std::string network =
      " --network squeezenet1_1 --image-size 32 --batch-size 2 --threads 1 --warmup 1";
  for (const char* name : {"a", "b"}) {
    const ProgramResult bench =
        run(sandbox_,
            std::string("ridge bench --iterations 8 --export-json ") + name + ".json" + network);
    ASSERT_EQ(bench.exit_code, 0) << bench.err;
  }
  const ProgramResult inference = compare("a.json b.json");
  EXPECT_EQ(inference.exit_code, 0) << inference.err;
  EXPECT_THAT(inference.out, AllOf(ContainsRegex("\nb.json \\(none\\) .*[0-9]x \\["),
                                   Not(HasSubstr("Not the same"))));
  const std::string train =
      "ridge train --num-steps 4 --learning-rate 0.0001 --output-dir t" + network;
  ASSERT_EQ(run(sandbox_, train).exit_code, 0);
  EXPECT_THAT(compare("t a.json").out, HasSubstr("Not the same work: mode is training in t and "
                                                 "inference in a.json"));
  EXPECT_EQ(compare("a.json none.json").exit_code, 1);
}

TEST_F(CompareRuns, OfOtherNetworksSayWhichIsTheBestToHave) {
  for (const char* network : {"squeezenet1_1", "vgg11"})
    ASSERT_EQ(run(sandbox_, std::string("ridge bench --iterations 6 --warmup 1 --image-size 32 "
                                        "--batch-size 2 --threads 1 --network ") +
                                network + " --export-json " + network + ".json")
                  .exit_code,
              0);
  const std::string runs = "squeezenet1_1.json vgg11.json";
  EXPECT_THAT(compare(runs).out, AllOf(ContainsRegex("\nVersion +\\| network +\\| Samples/s"),
                                       HasSubstr("\nMost samples per second: squeezenet1_1.json, "),
                                       Not(HasSubstr("Cheapest"))));
  const ProgramResult priced = compare(runs + " --price-per-hour 100,0.001");
  EXPECT_THAT(priced.out, AllOf(HasSubstr("| Price of 1000 |"),
                                ContainsRegex("\nCheapest: vgg11.json, [0-9.e-]+ for 1,000 ")));
  const auto json =
      nlohmann::json::parse(compare(runs + " --price-per-hour 3.6 --json").out)["runs"];
  EXPECT_NEAR(json[1]["price_of_1000"], 1 / double{json[1]["samples_per_second"]}, 1e-12);
  EXPECT_EQ(compare(runs + " --price-per-hour 1,2,3").exit_code, 2);
  EXPECT_EQ(compare(runs + " --price-per-hour 0").exit_code, 2);
}

}  // namespace
}  // namespace ridge
