// `ridge verify` fails if any of its runs is wrong, however many are right.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "tests/cli/tiny_runs.h"

namespace ridge {
namespace {

// Batch norm over the two values of a channel that are left at the end of such small images
// multiplies rounding errors: more than f32 is allowed, but not more than bf16 is.
const std::string mixed =
    "ridge verify --network resnet18 --image-size 32 --batch-size 2 --threads 1 --mode training "
    "--schedules v1 --curve-steps 1 ";

TEST(VerifyExitCode, IsOfTheWorstRun) {
  const Sandbox sandbox;
  const ProgramResult result = run(sandbox, mixed + "--dtypes fp32,bf16 --json");
  std::vector<bool> right;
  for (const auto& verdict : nlohmann::json::parse(result.out))
    right.push_back(verdict.at("right"));
  ASSERT_EQ(right, (std::vector<bool>{false, true})) << "one of each is what this needs";
  EXPECT_EQ(result.exit_code, 1);
}

}  // namespace
}  // namespace ridge
