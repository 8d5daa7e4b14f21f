// The ranges that an outside profiler is shown of a run. The listener and the program `ridge` are
// taken from beside this one; on the CPU they need no GPU.

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "tests/cli/program.h"
#include "tests/gpu/gpu.h"

namespace ridge {
namespace {

using ::testing::Contains;
using ::testing::Not;

class Nvtx : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto listener =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libnvtx_listener.so";
    if (!std::filesystem::exists(listener)) GTEST_SKIP() << "there is no " << listener;
    ::setenv("NVTX_INJECTION64_PATH", listener.c_str(), 1);
    ::setenv("NVTX_LISTENER_OUTPUT", sandbox_.path("ranges").c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("NVTX_INJECTION64_PATH");
    ::unsetenv("NVTX_LISTENER_OUTPUT");
  }

  // The lines of the tree of ranges of five steps.
  std::vector<std::string> ranges_of(const std::string& device, const std::string& version) {
    const ProgramResult result =
        sandbox_.run({"ridge",           "train", "--device",   device, "--version",   version,
                      "--hidden-dim",    "32",    "--n-layers", "1",    "--n-heads",   "2",
                      "--vocab-size",    "50",    "--seq-len",  "16",   "--num-steps", "5",
                      "--max-grad-norm", "1"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return lines_of(sandbox_.read("ranges"));
  }

  Sandbox sandbox_;
};

TEST_F(Nvtx, ShowsStepsPhasesAndOperatorsWithTheirModules) {
  for (const char* version : {"v1", "v4"}) {
    const std::vector<std::string> ranges = ranges_of("cpu", version);
    ASSERT_GT(ranges.size(), 5u);
    EXPECT_EQ(ranges[0], "domain ridge");
    EXPECT_EQ(ranges[1], "step 1");
    EXPECT_EQ(ranges[2], "  forward");
    EXPECT_THAT(ranges, Contains("step 5"));
    EXPECT_THAT(ranges, Contains("  backward"));
    EXPECT_THAT(ranges, Contains("  optimizer"));
    EXPECT_THAT(ranges, Contains("    layers.0.attention.o_proj: matmul").Times(15));
    EXPECT_THAT(ranges, Not(Contains("nothing to end")));
    for (std::size_t i = 1; i < ranges.size(); ++i)
      EXPECT_LE(ranges[i].find_first_not_of(' '), 4u) << ranges[i];
  }
}

TEST_F(Nvtx, ShowsACapturedStepAsOneRange) {
  if (gpu_count() == 0) GTEST_SKIP() << "there is no GPU here";
  const std::vector<std::string> ranges = ranges_of("cuda", "v4");
  const auto last = std::ranges::find(ranges, "step 5");
  ASSERT_NE(last, ranges.end());
  EXPECT_EQ(std::vector(last, ranges.end()),
            (std::vector<std::string>{"step 5", "  captured step"}));
  EXPECT_THAT(ranges, Contains("    layers.0.attention.o_proj: matmul")) << "of the steps before";
}

}  // namespace
}  // namespace ridge
