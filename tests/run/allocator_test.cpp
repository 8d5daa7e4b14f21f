#include "ridge/run/allocator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>

#include "ridge/base/error.h"
#include "ridge/base/random.h"
#include "ridge/cpu/device.h"
#include "tests/run/failing_devices.h"

namespace ridge {
namespace {

TEST(CachingAllocator, AlignsAndCountsWhatItHandsOut) {
  CpuDevice device(1);
  CachingAllocator allocator(device);
  void* const a = allocator.allocate(1);
  void* const b = allocator.allocate(65);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b) % 64, 0u);
  EXPECT_EQ(allocator.stats().live, 64u + 128u);
  allocator.release(a);
  EXPECT_EQ(allocator.stats().live, 128u);
  EXPECT_EQ(allocator.stats().peak_live, 192u);
  allocator.release(b);
  EXPECT_EQ(allocator.stats().live, 0u);
  EXPECT_EQ(allocator.stats().allocations, 2u);
}

// Three segments are free, none of them is large enough, and the device has no fourth.
TEST(CachingAllocator, GivesBackWhatIsUnusedBeforeItSaysThatThereIsNoMore) {
  constexpr std::size_t megabyte = std::size_t{1} << 20;
  CpuDevice cpu(1);
  testing::SmallDevice device(cpu, 15 * megabyte, 0);
  CachingAllocator allocator(device);
  void* const kept = allocator.allocate(3 * megabyte);
  std::vector<void*> unused;
  for (int i = 0; i < 3; ++i) unused.push_back(allocator.allocate(4 * megabyte));
  void* const small = unused.back();  // all of its segment stays in use
  unused.pop_back();
  for (void* memory : unused) allocator.release(memory);
  void* const large = allocator.allocate(8 * megabyte);
  EXPECT_EQ(allocator.stats().reserved, 15 * megabyte);
  EXPECT_EQ(device.held(), 15 * megabyte);
  EXPECT_THROW(allocator.allocate(megabyte), OutOfMemoryError);
  for (void* memory : {kept, small, large}) allocator.release(memory);
  EXPECT_EQ(allocator.stats().live, 0u);
  allocator.release(allocator.allocate(15 * megabyte));
}

TEST(CachingAllocator, ServesARepeatedStepWithoutNewMemory) {
  CpuDevice device(1);
  CachingAllocator allocator(device);
  auto step = [&] {
    void* const big = allocator.allocate(10'000'000);
    void* const small = allocator.allocate(1000);
    allocator.release(big);
    void* const half = allocator.allocate(5'000'000);
    allocator.release(small);
    allocator.release(half);
  };
  step();
  const std::size_t reserved = allocator.stats().reserved;
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(allocator.stats().reserved, reserved);
}

TEST(CachingAllocator, MergesFreeNeighbors) {
  CpuDevice device(1);
  CachingAllocator allocator(device);
  // One segment of 2 MiB in four parts, released out of order, is whole again.
  void* parts[4];
  for (void*& part : parts) part = allocator.allocate(std::size_t{512} << 10);
  for (const int i : {2, 0, 3, 1}) allocator.release(parts[i]);
  allocator.release(allocator.allocate(std::size_t{2} << 20));
  EXPECT_EQ(allocator.stats().reserved, std::size_t{2} << 20);
}

TEST(CachingAllocator, NeverHandsOutOverlappingBlocks) {
  CpuDevice device(1);
  CachingAllocator allocator(device);
  std::map<char*, std::pair<std::size_t, char>> live;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    const auto draw = [&](std::uint32_t bound, std::uint64_t what) {
      return uniform_integer(bound, 1, what, i);
    };
    if (live.size() > 40 || (!live.empty() && draw(3, 0) == 0)) {
      const auto victim = std::next(live.begin(), draw(static_cast<std::uint32_t>(live.size()), 1));
      const auto [bytes, mark] = victim->second;
      for (std::size_t b = 0; b < bytes; ++b) ASSERT_EQ(victim->first[b], mark);
      allocator.release(victim->first);
      live.erase(victim);
    } else {
      const std::size_t bytes = 1 + draw(i % 7 == 0 ? 3'000'000 : 5000, 2);
      auto* const block = static_cast<char*>(allocator.allocate(bytes));
      const char mark = static_cast<char>(i);
      std::memset(block, mark, bytes);
      live[block] = {bytes, mark};
    }
  }
}

TEST(CachingAllocator, RefusesWhatItDidNotHandOut) {
  CpuDevice device(1);
  CachingAllocator allocator(device);
  void* const a = allocator.allocate(100);
  EXPECT_THROW(allocator.release(static_cast<char*>(a) + 64), Error);
  allocator.release(a);
  EXPECT_THROW(allocator.release(a), Error);
}

}  // namespace
}  // namespace ridge
