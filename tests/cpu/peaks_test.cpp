#include "ridge/cpu/peaks.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

using namespace std::chrono_literals;

TEST(CpuCaches, ReadsSizesAndListsOfProcessors) {
  EXPECT_EQ(bytes_of_cache_size("32K"), 32u << 10);
  EXPECT_EQ(bytes_of_cache_size("1M"), 1u << 20);
  EXPECT_EQ(bytes_of_cache_size("512"), 512u);
  EXPECT_EQ(bytes_of_cache_size(""), 0u);
  EXPECT_EQ(bytes_of_cache_size("big"), 0u);
  EXPECT_EQ(count_of_cpu_list("3"), 1);
  EXPECT_EQ(count_of_cpu_list("0-3"), 4);
  EXPECT_EQ(count_of_cpu_list("0-1,8,64-65"), 5);
  EXPECT_EQ(count_of_cpu_list(""), 1);
  EXPECT_EQ(count_of_cpu_list("7-3"), 1);
}

TEST(CpuCaches, GrowFromLevelToLevel) {
  const std::vector<CpuCache> caches = cpu_caches();
  for (std::size_t i = 1; i < caches.size(); ++i) {
    EXPECT_GT(caches[i].bytes, caches[i - 1].bytes);
    EXPECT_GE(caches[i].sharing, caches[i - 1].sharing);
  }
}

// Every kernel runs on this machine and gives a rate that two cores of our time can have, even
// unoptimized and with other programs beside them.
TEST(Peaks, AreOfPlausibleSize) {
  ThreadPool pool(2);
  for (const FlopsKernel& kernel : flops_kernels()) {
    const double rate = measure_flops(kernel, pool, 2ms);
    EXPECT_GT(rate, 1e7) << kernel.instructions;
    EXPECT_LT(rate, 2 * 8e12) << kernel.instructions;
  }
  for (const AccessPattern access :
       {AccessPattern::read, AccessPattern::copy, AccessPattern::triad})
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{16} << 10, std::size_t{4} << 20}) {
      const double rate = measure_bandwidth(access, bytes, pool, 2ms);
      EXPECT_GT(rate, 1e7) << name_of(access) << " of " << bytes;
      EXPECT_LT(rate, 2 * 2e12) << name_of(access) << " of " << bytes;
    }
}

}  // namespace
}  // namespace ridge
