#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace ridge {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

const std::vector<std::string> quick{
    "ridge", "bench",    "--device", "cpu",          "--network", "squeezenet1_1", "--batch-size",
    "1",     "--warmup", "1",        "--image-size", "64",        "--iterations",  "3"};

std::vector<std::string> with(std::vector<std::string> command,
                              std::initializer_list<std::string> more) {
  command.insert(command.end(), more);
  return command;
}

TEST(BenchCommand, PrintsEveryIterationAndASummary) {
  const Sandbox sandbox;
  const ProgramResult result =
      sandbox.run(with(quick, {"--export-json", "b.json", "--export-times", "b.csv"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* text :
       {"Using network: squeezenet1_1", "Warmup iteration 0: Loss = ", "Warmup complete.",
        "Epoch 0: Loss = ", "Epoch 2: Loss = ", "Performance Summary:", "Wrote b.csv",
        "Wrote b.json"})
    EXPECT_THAT(result.out, HasSubstr(text));
  EXPECT_EQ(nlohmann::json::parse(sandbox.read("b.json"))["seconds"]["all"].size(), 3u);
  EXPECT_THAT(sandbox.read("b.csv"), HasSubstr("\n2,"));
}

TEST(BenchCommand, ListsTheNetworks) {
  const Sandbox sandbox;
  const auto list = nlohmann::json::parse(sandbox.run({"ridge", "bench", "--list", "--json"}).out);
  ASSERT_EQ(list.size(), 65u);
  for (const auto& entry : list)
    for (const char* key : {"name", "parameters", "macs", "input_size"})
      EXPECT_TRUE(entry.contains(key)) << entry;
  EXPECT_THAT(sandbox.run({"ridge", "bench", "--list"}).out, HasSubstr("resnext50_32x4d"));
}

TEST(BenchCommand, RefusesWhatItCannotDoBeforeItMeasures) {
  const Sandbox sandbox;
  const auto refused = [&](std::initializer_list<std::string> more, int code, const char* what) {
    const ProgramResult result = sandbox.run(with(quick, more));
    EXPECT_EQ(result.exit_code, code);
    EXPECT_THAT(result.err, HasSubstr(what));
    EXPECT_THAT(result.err, EndsWith("\n"));
    EXPECT_THAT(result.out, Not(HasSubstr("Epoch")));
  };
  refused({"--network", "resnet5"}, 2, "resnet50");
  refused({"--batch-size", "0"}, 2, "--batch-size is 0");
  refused({"--image-size", "8"}, 2, "8 x 8 are too small");
  refused({"--dtype", "fp16"}, 2, "fp32, tf32, bf16");
  refused({"--export-json", "missing/b.json"}, 1, "cannot write missing/b.json");
}

}  // namespace
}  // namespace ridge
