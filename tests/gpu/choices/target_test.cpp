// What rewriting, planning and scheduling are told of a card.

#include "ridge/gpu/device/target.h"

#include <gtest/gtest.h>

namespace ridge::gpu {
namespace {

TEST(GpuTarget, SaysWhatTheCardsFileSays) {
  const Target target = target_of({.compute_capability = 90}, "a card");
  EXPECT_TRUE(target.is_gpu());
  EXPECT_EQ(target.description, "cuda, a card");
  EXPECT_EQ(target.filling_flops, 8e9);
  EXPECT_EQ(target.filling_bytes, 24e6);
  EXPECT_EQ(target.lingering.nodes, 24u);
  EXPECT_EQ(target.lingering.most_bytes, std::size_t{16} << 20);
  EXPECT_EQ(target.most_squeeze_weights, 56 << 10);
  EXPECT_EQ(target.least_aligned_rows, 192);
  EXPECT_EQ(target.least_update_bytes, std::size_t{32} << 20);
  EXPECT_EQ(target.alignment, 256u);
  EXPECT_EQ(target.widest_head, 256);
}

// A bottleneck that no kernel holds is better left to its convolutions.
TEST(GpuTarget, OnlySm90HoldsBottlenecks) {
  const BottleneckRules held = target_of({.compute_capability = 90}, "").bottleneck;
  EXPECT_EQ(held.channels, 64);
  EXPECT_EQ(held.most_expanded, 256);
  for (const int other : {80, 86, 89, 100, 120})
    EXPECT_EQ(target_of({.compute_capability = other}, "").bottleneck.channels, 0) << other;
}

TEST(GpuTarget, MultipliesFloat8SinceSm89) {
  for (const auto& [capability, multiplies] :
       {std::pair{80, false}, {86, false}, {89, true}, {90, true}})
    EXPECT_EQ(target_of({.compute_capability = capability}, "").multiplies_float8, multiplies);
}

}  // namespace
}  // namespace ridge::gpu
