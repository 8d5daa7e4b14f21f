// The debugging exercise as its learners see it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/exercise/stage.h"
#include "tests/cli/program.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Words stage(std::int64_t number, const Words& more = {}) {
  Words words = words_of(
      "ridge exercise debug --hidden-dim 64 --n-layers 1 --n-heads 2 --seq-len 16 --batch-size 2 "
      "--num-steps 5 --threads 1 --stage");
  words.push_back(std::to_string(number));
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Enough of a text to know it by, and too little to be broken into lines.
std::string start_of(std::string_view text) { return std::string(text.substr(0, 60)); }

TEST(DebuggingExercise, ShowsTheSymptomAndNotTheCause) {
  for (const DebugStage& s : debug_stages()) {
    const Sandbox sandbox;
    const ProgramResult result = sandbox.run(stage(s.number, {"--profile"}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, IsEmpty());
    EXPECT_THAT(result.out, AllOf(HasSubstr("Tiny LLaMA V3 - Kernels"),
                                  ContainsRegex("\nStep 5/5: Loss = [0-9.]+, Time = "),
                                  HasSubstr("\nFinal loss: "), HasSubstr(start_of(s.symptom)),
                                  HasSubstr(start_of(s.hint))));
    EXPECT_THAT(result.out, Not(HasSubstr(start_of(s.cause))));
    // What the other tools read.
    EXPECT_TRUE(sandbox.has("profiles/operators.json"));
    EXPECT_TRUE(sandbox.has("output/performance_summary.json"));
    EXPECT_EQ(sandbox.run({"ridge", "report", "profiles"}).exit_code, 0);
  }
}

TEST(DebuggingExercise, RevealsComparesAndVerifies) {
  for (const DebugStage& s : debug_stages()) {
    const Sandbox sandbox;
    const ProgramResult told = sandbox.run(stage(s.number, {"--reveal"}));
    EXPECT_EQ(told.exit_code, 0) << told.err;
    for (const std::string_view text : {s.symptom, s.cause, s.evidence, s.fix})
      EXPECT_THAT(told.out, HasSubstr(start_of(text)));
    EXPECT_FALSE(sandbox.has("output")) << "nothing has run";

    const ProgramResult compared = sandbox.run(stage(s.number, {"--fix"}));
    EXPECT_EQ(compared.exit_code, 0) << compared.err;
    EXPECT_THAT(compared.out, AllOf(ContainsRegex("\\| +Defective +\\| +Fixed +\\| +Ratio\n"),
                                    HasSubstr("\nLoss at the first step "),
                                    HasSubstr("\nParameters without gradient ")));

    const ProgramResult verified = sandbox.run(stage(s.number, {"--verify"}));
    EXPECT_EQ(verified.exit_code, 0) << verified.err;
    const bool computes_right = s.number != 1 && s.number != 5;
    EXPECT_THAT(verified.out,
                HasSubstr(computes_right ? "\nWhat it computes is right.\n" : "\nWRONG: "));
    if (s.number == 5) {
      EXPECT_THAT(verified.out, ContainsRegex("Parameters without gradient +12 +of 12\n"));
    }
  }
}

TEST(DebuggingExercise, RefusesWhatItCannotDo) {
  const Sandbox sandbox;
  const auto refusal = [&](const Words& words) {
    const ProgramResult result = sandbox.run(words);
    EXPECT_EQ(result.exit_code, 2);
    return result.err;
  };
  EXPECT_THAT(refusal({"ridge", "exercise"}), HasSubstr("ridge exercise debug --stage 1"));
  EXPECT_THAT(refusal({"ridge", "exercise", "debug"}), HasSubstr("stages 1 to 5"));
  EXPECT_THAT(refusal(stage(6)), HasSubstr("--stage is 6"));
  EXPECT_THAT(refusal(stage(1, {"--verify", "--fix"})), HasSubstr("--verify"));
  EXPECT_THAT(refusal(stage(1, {"--reveel"})), HasSubstr("did you mean --reveal?"));
  EXPECT_THAT(refusal(stage(4, {"--version", "v1"})), HasSubstr("fuse-gate-up"));
}

}  // namespace
}  // namespace ridge
