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
  EXPECT_EQ(ceilings.kind, DeviceKind::gpu);
  EXPECT_EQ(ceilings.hardware, device().hardware());
  const Roof roof = roof_of(ceilings, 1);
  const auto rate_of = [&](std::string_view instructions, ProductKind precision) {
    const auto same = [&](const ComputeCeiling& c) {
      return c.instructions == instructions && c.precision == precision;
    };
    const auto found = std::ranges::find_if(ceilings.compute, same);
    EXPECT_NE(found, ceilings.compute.end()) << instructions << " in " << name_of(precision);
    return found == ceilings.compute.end() ? 0 : found->all_cores;
  };
  const double multiply_adds = rate_of("multiply-add", ProductKind::f32),
               product = rate_of("product", ProductKind::f32);
  EXPECT_GT(multiply_adds, 1e12);
  // Of any card with tensor cores: a product in f32 is no faster than multiply-adds in registers.
  EXPECT_LT(product, 1.05 * multiply_adds);
  EXPECT_GT(product, 0.4 * multiply_adds);
  // Pieces of bf16 only where they are faster.
  const bool split_bf16 = ceilings.compute.size() == 11;
  ASSERT_TRUE(split_bf16 || ceilings.compute.size() == 9) << ceilings.compute.size();
  if (split_bf16) {
    EXPECT_GT(rate_of("product", ProductKind::bf16x6), 1.2 * product);
  }
  for (const ProductKind precision :
       {ProductKind::f32, ProductKind::tf32, ProductKind::bf16, ProductKind::f16})
    EXPECT_GE(rate_of("product", precision), rate_of("product, sustained", precision))
        << name_of(precision);
  EXPECT_GT(roof.flops(ProductKind::tf32), roof.flops(ProductKind::f32));
  EXPECT_GT(roof.flops(ProductKind::bf16), 1.3 * roof.flops(ProductKind::tf32));
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
