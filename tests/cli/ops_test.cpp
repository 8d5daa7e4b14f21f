#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace ridge {
namespace {

using testing::HasSubstr;

TEST(OpsCommand, TimesAListAndWritesIt) {
  const Sandbox sandbox;
  const ProgramResult result =
      sandbox.run({"ridge", "ops", "--device", "cpu", "--run-predefined", "--input1-dim", "8-32",
                   "--input2-dim", "32", "--inplace", "--num-iters", "2", "--num-warmup-iters", "1",
                   "--export-json", "ops.json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* text : {"Operator", "GB/s", "add_(8-32, 32)", "argmin(8-32)", "Wrote ops.json"})
    EXPECT_THAT(result.out, HasSubstr(text));
  const auto json = nlohmann::json::parse(sandbox.read("ops.json"));
  ASSERT_EQ(json["operators"].size(), 18u);
  for (const auto& row : json["operators"]) EXPECT_GT(row["seconds"], 0.0) << row;
}

TEST(OpsCommand, TakesTheSecondOperandToBeLikeTheFirst) {
  const Sandbox sandbox;
  const ProgramResult result = sandbox.run({"ridge", "ops", "--device", "cpu", "--op", "mul",
                                            "--input1-dim", "4-6", "--num-iters", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("mul(4-6, 4-6)"));
}

TEST(OpsCommand, RefusesInOneLine) {
  const Sandbox sandbox;
  const auto refused = [&](std::initializer_list<std::string> flags, const char* what) {
    std::vector<std::string> command{"ridge", "ops", "--device", "cpu"};
    command.insert(command.end(), flags);
    const ProgramResult result = sandbox.run(command);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr(what));
  };
  refused({"--op", "plus"}, "choose one of add");
  refused({"--input1-dim", "3x4"}, "--input1-dim is '3x4'");
  refused({"--op", "exp", "--op-type", "binary"}, "exp is unary");
  refused({"--dtype", "int8"}, "fp32, fp16, bf16");
  refused({"--op", "add", "--op-type", "unary"}, "add is binary or sparse");
  refused({"--op", "add", "--op-type", "sparse", "--input2-dim", "8"}, "in place");
  refused({"--op", "add_", "--op-type", "sparse", "--input1-dim", "100-8"}, "--input2-dim ROWS");
  refused({"--run-model-ops", "--inplace"}, "--run-model-ops");
  refused({"--run-model-ops", "--run-predefined"}, "two lists");
  refused({"--op", "exp", "--input2-dim", "8-8"}, "--input2-dim is '8-8', but exp is unary");
  refused({"--op", "sum", "--input2-dim", "8"}, "but sum is reduction");
  refused({"--run-predefined", "--op", "mul"}, "--run-predefined is a list that excludes --op:");
  refused({"--run-predefined", "--op-type", "unary"}, "--run-predefined is a list that excludes");
  refused({"--run-model-ops", "--input1-dim", "8"}, "--run-model-ops is a list that excludes");
  refused({"--num-iters", "0"}, "--num-iters is 0");
}

TEST(OpsCommand, NamesItsOperators) {
  EXPECT_THAT(Sandbox().run({"ridge", "ops", "--list"}).out, HasSubstr("reduction"));
}

}  // namespace
}  // namespace ridge
