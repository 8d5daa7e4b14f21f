// `ridge trace diff`: exit codes, and directories of ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/trace/made_trace.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;

// Steps of one kernel that takes so long, us.
std::string trace_of(int steps, double gemm, const std::string& before = "") {
  trace::MadeTrace made;
  double card = 10;
  for (int i = 0; i < steps; ++i) {
    made.step(i, 10 * i, 10).operation("aten::mm", 10 * i + 1, 8, "[[8,8],[8,8]]");
    made.launched("gemm", 10 * i + 2, card, gemm + i % 2);
    card += gemm + i % 2;
  }
  return made.text(before);
}

std::string rank(int number) { return fmt::format(R"("distributedInfo":{{"rank":{}}},)", number); }

class TraceDiffCommand : public ::testing::Test {
 protected:
  ProgramResult diff(const std::string& arguments) {
    return sandbox_.run(words_of("ridge trace diff " + arguments));
  }
  void make(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(sandbox_.path(path).parent_path());
    sandbox_.write(path, text);
  }
  Sandbox sandbox_;
};

TEST_F(TraceDiffCommand, ExitCodesTellSlowerFromUndecided) {
  make("fast.json", trace_of(8, 100));
  make("slow.json", trace_of(8, 120));
  make("short.json", trace_of(2, 120));
  EXPECT_EQ(diff("fast.json slow.json --fail-above 5").exit_code, 1);
  EXPECT_THAT(diff("fast.json slow.json --fail-above 5").err,
              HasSubstr("ridge: slow.json is slower than fast.json by more than 5 %: by 1"));
  EXPECT_EQ(diff("fast.json slow.json --fail-above 25").exit_code, 0);
  EXPECT_EQ(diff("slow.json fast.json --fail-above 0").exit_code, 0);
  EXPECT_EQ(diff("fast.json fast.json --fail-above 0").exit_code, 0);
  EXPECT_EQ(diff("fast.json slow.json").exit_code, 0);
  const ProgramResult undecided = diff("fast.json short.json --fail-above 5");
  EXPECT_EQ(undecided.exit_code, 3);
  EXPECT_THAT(undecided.err, HasSubstr("ridge: too few whole steps of fast.json or short.json"));
}

TEST_F(TraceDiffCommand, ComparesRankByRank) {
  make("a/x.json", trace_of(4, 100, rank(1)));
  make("a/y.json", trace_of(4, 100, rank(0)));
  make("b/x.json", trace_of(4, 100, rank(0)));
  make("b/y.json", trace_of(4, 130, rank(1)));
  const auto json = nlohmann::json::parse(output_of(diff("a b --json")));
  ASSERT_EQ(json["ranks"].size(), 2U);
  EXPECT_EQ(json["ranks"][0]["before"]["file"], "y.json");
  EXPECT_TRUE(json["ranks"][0]["rows"].empty());
  EXPECT_EQ(json["ranks"][1]["after"]["rank"], 1);
  EXPECT_EQ(json["ranks"][1]["rows"].size(), 1U);
}

TEST_F(TraceDiffCommand, RefusesDirectoriesThatItCannotPair) {
  make("a/x.json", trace_of(4, 100, rank(1)));
  make("a/y.json", trace_of(4, 100, rank(1)));
  make("b/x.json", trace_of(4, 100));
  make("b/y.json", trace_of(4, 100));
  make("c/x.json", trace_of(4, 100, rank(5)));
  make("c/y.json", trace_of(4, 100, rank(6)));
  make("d/x.json", trace_of(4, 100, rank(7)));
  EXPECT_THAT(complaint_of(diff("a a"), 2), HasSubstr("two traces of rank 1"));
  EXPECT_THAT(complaint_of(diff("b b"), 2), HasSubstr("does not tell its rank"));
  EXPECT_THAT(complaint_of(diff("c d"), 2), HasSubstr("no rank has a trace in both c and d"));
}

}  // namespace
}  // namespace ridge
