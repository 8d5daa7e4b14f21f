#include "ridge/device/activity.h"

#include <gtest/gtest.h>

#include "tests/device/processor_limits.h"

namespace ridge {
namespace {

double occupancy(std::uint32_t threads, std::uint32_t registers, std::uint32_t shared) {
  return theoretical_occupancy(
      testing::sm90_limits,
      {.block = {threads, 1, 1}, .registers = registers, .dynamic_shared = shared});
}

// As the occupancy calculator of the CUDA toolkit (cudaOccupancyMaxActiveBlocksPerMultiprocessor)
// has them for compute capability 9.0.
TEST(TheoreticalOccupancy, IsThatOfTheScarcestResource) {
  EXPECT_DOUBLE_EQ(occupancy(256, 32, 0), 1) << "nothing is scarce";
  EXPECT_DOUBLE_EQ(occupancy(32, 32, 0), 0.5) << "32 blocks";
  EXPECT_DOUBLE_EQ(occupancy(1024, 32, 0), 1);
  EXPECT_DOUBLE_EQ(occupancy(768, 32, 0), 0.75) << "whole blocks";
  EXPECT_DOUBLE_EQ(occupancy(256, 64, 0), 0.5) << "registers";
  EXPECT_DOUBLE_EQ(occupancy(256, 65, 0), 0.375) << "in units of 256 a warp";
  EXPECT_DOUBLE_EQ(occupancy(256, 255, 0), 0.125);
  // Of each of the four register files: 16384 registers are 12 warps of 1280, or 5 of 3072.
  EXPECT_DOUBLE_EQ(occupancy(64, 40, 0), 4 * 12.0 / 64);
  EXPECT_DOUBLE_EQ(occupancy(544, 40, 0), 2 * 17.0 / 64) << "whole blocks of 17 of these 48 warps";
  EXPECT_DOUBLE_EQ(occupancy(96, 96, 0), 6 * 3.0 / 64) << "whole blocks of 3 of 20";
  EXPECT_DOUBLE_EQ(occupancy(128, 32, 100 * 1024), 2.0 * 4 / 64) << "shared memory";
  EXPECT_DOUBLE_EQ(occupancy(128, 32, 227 * 1024), 4.0 / 64);
  EXPECT_DOUBLE_EQ(occupancy(128, 32, 228 * 1024), 0) << "the system's part does not fit";
  EXPECT_DOUBLE_EQ(theoretical_occupancy({}, {.block = {128, 1, 1}}), 0) << "unknown";
}

TEST(Demangled, LeavesOtherNamesAlone) {
  EXPECT_EQ(demangled("_ZN5ridge3addIfEEvPT_i"), "void ridge::add<float>(float*, int)");
  EXPECT_EQ(demangled("cutlass_80_tensorop"), "cutlass_80_tensorop");
  EXPECT_EQ(demangled(""), "");
}

}  // namespace
}  // namespace ridge
