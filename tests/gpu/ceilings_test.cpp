// What a card is measured to do.

#include "ridge/analyze/ceilings.h"

#include <algorithm>

#include "tests/gpu/gpu.h"

namespace ridge {
namespace {

using GpuCeilings = testing::GpuTest;

TEST_F(GpuCeilings, AreInTheOrderOfAnyCard) {
  const Ceilings ceilings = measure_device_ceilings(device(), std::chrono::milliseconds(30));
  EXPECT_EQ(ceilings.device, "cuda");
  EXPECT_EQ(ceilings.hardware, device().hardware());
  const Roof roof = roof_of(ceilings, 1);
  // Of any card with tensor cores: a product in f32 is no faster than multiply-adds in registers.
  ASSERT_EQ(ceilings.compute.size(), 9u);
  EXPECT_GT(ceilings.compute[0].all_cores, 1e12);
  EXPECT_LT(ceilings.compute[2].all_cores, 1.05 * ceilings.compute[0].all_cores);
  EXPECT_GT(ceilings.compute[2].all_cores, 0.4 * ceilings.compute[0].all_cores);
  for (const std::size_t best : {2, 4, 6, 8})
    EXPECT_GE(ceilings.compute[best].all_cores, ceilings.compute[best - 1].all_cores);
  EXPECT_GT(roof.flops("tf32"), roof.flops("f32"));
  EXPECT_GT(roof.flops("bf16"), 1.3 * roof.flops("tf32"));
  ASSERT_EQ(ceilings.bandwidth.size(), 2u);
  EXPECT_GT(ceilings.bandwidth[0].all_cores, 1.2 * ceilings.bandwidth[1].all_cores);
  for (const BandwidthCeiling& level : ceilings.bandwidth)
    for (const BandwidthCeiling::Access& access : level.accesses)
      EXPECT_GT(access.bytes_per_second, 0.3 * level.all_cores) << level.level << access.name;
  EXPECT_GT(ceilings.launch_seconds, 0.2e-6);
  EXPECT_LT(ceilings.launch_seconds, 50e-6);
  EXPECT_GT(ceilings.captured_seconds, 0.1e-6);
  EXPECT_LT(ceilings.captured_seconds, 10e-6);
}

}  // namespace
}  // namespace ridge
