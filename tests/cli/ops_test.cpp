#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/cli/program.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;

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
  refused({"--space", "--op", "add"}, "--space takes the operators of workloads");
  refused({"--space", "--mode", "use"}, "--mode is 'use'; choose one of");
  refused({"--space", "--networks", "resnet19"}, "resnet18");
  refused({"--networks", "resnet18"}, "--networks is about --space");
}

// What the operators of a step take is nearly all of it, and no row loses more than it takes.
TEST(OpsCommand, HoldsOperatorsOfWorkloadsAgainstTheirFloors) {
  const Sandbox sandbox;
  sandbox.write(
      "small.json",
      R"({"hidden-dim": 64, "n-layers": 1, "n-heads": 4, "seq-len": 64, "batch-size": 4})");
  const ProgramResult result = sandbox.run(
      {"ridge", "ops", "--space", "--device", "cpu", "--networks", "squeezenet1_1", "--configs",
       "small.json", "--batch-size", "2", "--top", "3", "--export-json", "space.json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("operators of 4 workloads, 3 shown"));
  std::map<std::string, double> share;
  std::set<std::string> operators;
  double last = 1;
  const auto json = nlohmann::json::parse(sandbox.read("space.json"));
  for (const auto& row : json["operators"]) {
    const double lost = row["lost_share_of_step"];
    EXPECT_LE(lost, row["share_of_step"]) << row;
    EXPECT_LE(lost, last) << "the most lost first: " << row;
    EXPECT_GT(row["floor_seconds_per_step"], 0.0) << row;
    share[row["workload"]] += row["share_of_step"].get<double>();
    operators.insert(row["operator"]);
    last = lost;
  }
  EXPECT_THAT(share, ::testing::SizeIs(4));
  for (const auto& [workload, sum] : share) {
    EXPECT_GT(sum, 0.5) << workload;
    EXPECT_LT(sum, 1.001) << workload;
  }
  EXPECT_TRUE(operators.contains("conv2d") && operators.contains("attention"));
}

// Whose defaults are those of the network that it names.
TEST(OpsCommand, NamesTheFileOfOptionsThatIsWrong) {
  const Sandbox sandbox;
  sandbox.write("wrong.json", R"({"hidden-dim": 64, "bogus": 1})");
  const ProgramResult result =
      sandbox.run({"ridge", "ops", "--space", "--device", "cpu", "--configs", "wrong.json"});
  EXPECT_EQ(complaint_of(result, 1), "ridge: wrong.json: there is no option \"bogus\"\n");
  sandbox.write("network.json", R"({"network": "squeezenet1_1", "batch-size": 1})");
  EXPECT_THAT(sandbox
                  .run({"ridge", "ops", "--space", "--device", "cpu", "--mode", "inference",
                        "--configs", "network.json"})
                  .out,
              HasSubstr("squeezenet1_1, 1, inference (network.json)"));
}

TEST(OpsCommand, NamesItsOperators) {
  EXPECT_THAT(Sandbox().run({"ridge", "ops", "--list"}).out, HasSubstr("reduction"));
}

}  // namespace
}  // namespace ridge
