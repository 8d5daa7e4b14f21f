// `ridge ablate`, as its users run it.

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

TEST(Ablate, WritesTheWaterfall) {
  const Sandbox sandbox;
  const ProgramResult result =
      run(sandbox, "ridge ablate --rounds 6 --num-steps 6 --to v2 --output-dir a/b" + tiny);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_THAT(result.out, AllOf(HasSubstr("\n(none) "), HasSubstr("\nfuse-qkv "),
                                ContainsRegex("\nfuse-optimizer +\\| v2 "),
                                HasSubstr("Wrote a/b/ablation.html"), Not(HasSubstr("flash"))));
  const auto json = nlohmann::json::parse(sandbox.read("a/b/ablation.json"));
  ASSERT_EQ(json["rows"].size(), 7u) << "only passes that change this model in this precision";
  EXPECT_EQ(json["rows"][0]["round_seconds"].size(), 6u);
  EXPECT_GT(json["rows"][0]["seconds"], 0);
  EXPECT_GT(json["rows"][0]["kernels"], json["rows"][6]["kernels"]);
  EXPECT_EQ(json["options"]["hidden-dim"], 16);
  EXPECT_TRUE(sandbox.read("a/b/ablation.svg").starts_with("<svg xmlns="));
  EXPECT_THAT(sandbox.read("a/b/ablation.html"), HasSubstr("</html>"));
}

TEST(Ablate, PrintsJsonAlone) {
  const Sandbox sandbox;
  const ProgramResult result =
      run(sandbox, "ridge ablate --rounds 1 --num-steps 1 --from v2 --to v3 --json" + tiny);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  ASSERT_EQ(json["rows"].size(), 5u);
  EXPECT_EQ(json["rows"][0]["version"], "v2");
  EXPECT_EQ(json["rows"][1]["to_row_before"]["change"], "too few rounds");
}

TEST(Ablate, RefusesWhatMakesNoSense) {
  const Sandbox sandbox;
  for (const auto& [flags, message] : {std::pair{"--from v3 --to v3", "v3 adds no pass to v3"},
                                       {"--from v7", "there is no version 'v7'"},
                                       {"--rounds 0", "--rounds is 0"},
                                       {"--version v2", "leave out --version"}}) {
    const ProgramResult result = run(sandbox, std::string("ridge ablate ") + flags + tiny);
    EXPECT_EQ(result.exit_code, 2) << flags;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

}  // namespace
}  // namespace ridge
