// `ridge bench` on a GPU: what its profiles and tables say of a device that runs by itself.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ridge/gpu/device.h"
#include "tests/cli/program.h"

namespace ridge {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class GpuBenchCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "there is no GPU";
  }
  ProgramResult run(std::initializer_list<std::string> more) const {
    std::vector<std::string> command{"micro_benchmarking_pytorch",
                                     "--network",
                                     "resnet18",
                                     "--batch-size",
                                     "8",
                                     "--iterations",
                                     "6",
                                     "--device",
                                     "cuda"};
    command.insert(command.end(), more);
    return sandbox_.run(command);
  }
  const Sandbox sandbox_;
};

TEST_F(GpuBenchCommand, TellsTheHostsTimeFromTheDevices) {
  const ProgramResult result =
      run({"--autograd-profiler", "--flops-prof-step", "4", "--export-profile", "t.json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* text :
       {"GPU Memory Usage: ", "CPU time to launch the work:", "CUDA time, by operation:",
        "CUDA time, by kernel:", "CUDA memory, in one pass:", "Which kernels take longest",
        "Profile Summary at step 4:", "How efficient is it?"})
    EXPECT_THAT(result.out, HasSubstr(text));
  EXPECT_THAT(result.out, ContainsRegex("to launch the work, .* of kernels, a ratio of [0-9.]+"));
  const auto trace = nlohmann::json::parse(sandbox_.read("t.json"));
  EXPECT_THAT(trace.dump(), HasSubstr("\"cat\":\"kernel\""));
}

TEST_F(GpuBenchCommand, PutsPrecisionsAndBatchSizesSideBySide) {
  const ProgramResult precisions = run({"--precisions", "fp32,tf32,bf16"});
  ASSERT_EQ(precisions.exit_code, 0) << precisions.err;
  EXPECT_THAT(precisions.out, HasSubstr("Same class chosen"));
  const ProgramResult sizes = run({"--batch-sizes", "1,8,1000000"});
  ASSERT_EQ(sizes.exit_code, 0) << sizes.err;
  EXPECT_THAT(sizes.out, HasSubstr("1000000 | out of memory"));
}

TEST_F(GpuBenchCommand, RunsTheLargestBatchThatItPlanned) {
  const ProgramResult result =
      run({"--find-max-batch", "--max-batch-for", "400MB", "--export-json", "b.json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto row = nlohmann::json::parse(sandbox_.read("b.json"))["rows"][0];
  EXPECT_EQ(row["batch_size"], row["planned_batch_size"]);
  EXPECT_EQ(row["measured_peak_bytes"], row["planned_peak_bytes"]);
}

}  // namespace
}  // namespace ridge
