#include "ridge/device/occupancy.h"

#include <gtest/gtest.h>

#include "tests/device/processor_limits.h"

namespace ridge {
namespace {

using testing::sm90_limits;

Activity kernel(std::uint32_t threads, std::uint32_t registers, std::uint32_t shared = 0,
                std::uint32_t blocks = 1 << 20) {
  return {.grid = {blocks, 1, 1},
          .block = {threads, 1, 1},
          .registers = registers,
          .dynamic_shared = shared};
}

void expect(const Activity& launch, OccupancyLimit limit, std::int64_t blocks, double part,
            const std::string& why) {
  const Occupancy occupancy = occupancy_of(sm90_limits, launch);
  EXPECT_EQ(name_of(occupancy.limit), name_of(limit)) << why;
  EXPECT_EQ(occupancy.blocks, blocks) << why;
  EXPECT_DOUBLE_EQ(occupancy.part, part) << why;
  EXPECT_EQ(explanation_of(occupancy, sm90_limits, launch), why);
  EXPECT_DOUBLE_EQ(theoretical_occupancy(sm90_limits, launch), part);
}

// By hand from the limits of compute capability 9.0.
TEST(Occupancy, NamesWhatLimitsIt) {
  expect(kernel(256, 32), OccupancyLimit::threads, 8, 1.0,
         "a block of 256 threads is 8 warps: 8 fit into 64 warps");
  expect(kernel(32, 16), OccupancyLimit::blocks, 32, 0.5,
         "a multiprocessor holds 32 blocks at most, of 1 warp each");
  // 168 * 32 is a multiple of 256; a file of 16,384 holds 3 warps of 5,376, four files 12.
  expect(
      kernel(256, 168), OccupancyLimit::registers, 1, 0.125,
      "168 registers a thread are 5,376 a warp: 12 warps fit into 65,536, which is 1 block of 8");
  expect(kernel(128, 32, 100 * 1024), OccupancyLimit::shared_memory, 2, 0.125,
         "101.00 KiB of shared memory a block, 1.00 KiB of it the system's: 2 fit into 228.00 KiB");
  expect(kernel(256, 32, 0, 100), OccupancyLimit::grid, 8, 1.0,
         "the grid has 100 blocks, and 132 multiprocessors hold 1,056 at a time");
}

TEST(Occupancy, IsNoneOfWhatIsUnknownOrDoesNotFit) {
  EXPECT_EQ(occupancy_of({}, kernel(256, 32)).limit, OccupancyLimit::none);
  EXPECT_EQ(occupancy_of(sm90_limits, Activity{}).limit, OccupancyLimit::none);
  EXPECT_EQ(explanation_of(occupancy_of({}, kernel(256, 32)), {}, kernel(256, 32)), "");
  const Occupancy too_large = occupancy_of(sm90_limits, kernel(256, 32, 300 * 1024));
  EXPECT_EQ(too_large.limit, OccupancyLimit::shared_memory);
  EXPECT_EQ(too_large.blocks, 0);
  EXPECT_EQ(too_large.waves, 0);
  EXPECT_DOUBLE_EQ(occupancy_of(sm90_limits, kernel(256, 32, 0, 2112)).waves, 2);
}

}  // namespace
}  // namespace ridge
