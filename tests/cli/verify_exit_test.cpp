// `ridge verify` fails if any of its runs is wrong, however many are right.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "tests/cli/tiny_runs.h"

namespace ridge {
namespace {

// At this rate training is chaos, in which v1 ends where v1 ends, and a schedule that rounds to
// bf16 elsewhere a thousand times as far from it as the limit allows.
const std::string mixed =
    "ridge verify --this-model --hidden-dim 32 --n-layers 2 --n-heads 2 --vocab-size 50 "
    "--seq-len 16 --batch-size 2 --threads 1 --learning-rate 10 --curve-steps 40 "
    "--schedules v1,v3 --dtypes bf16 --json";

TEST(VerifyExitCode, IsOfTheWorstRun) {
  const Sandbox sandbox;
  const ProgramResult result = run(sandbox, mixed);
  std::vector<bool> right;
  for (const auto& verdict : nlohmann::json::parse(result.out))
    right.push_back(verdict.at("right"));
  ASSERT_EQ(right, (std::vector<bool>{true, false})) << "one of each is what this needs";
  EXPECT_EQ(result.exit_code, 1);
}

}  // namespace
}  // namespace ridge
