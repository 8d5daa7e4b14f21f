#pragma once

#include <cstddef>

#include "ridge/device/device.h"
#include "ridge/run/allocator.h"

namespace ridge {

// One allocation whose parts were given away beforehand, by offset (plan/arena.h): nothing is
// searched for, but what is in use is counted as CachingAllocator counts it.
class Arena {
 public:
  // `jointly` with the other ranks' devices, which may then write to it.
  Arena(Device& device, std::size_t bytes, bool jointly = false);
  ~Arena() { device_.deallocate(memory_, stats_.reserved); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void* at(std::size_t offset) const { return memory_ + offset; }
  void* take(std::size_t offset, std::size_t bytes);
  void release(std::size_t bytes);

  // What a stretch of takes and releases amounts to, so that it can be counted at once.
  struct Usage {
    std::size_t allocations = 0;
    std::size_t taken = 0, released = 0;
    std::size_t peak = 0;  // beyond what was in use before
    void take(std::size_t bytes);
    void release(std::size_t bytes);
  };
  void count(const Usage& usage);

  const MemoryStats& stats() const { return stats_; }
  void reset_peak() { stats_.peak_live = stats_.live; }

 private:
  Device& device_;
  std::byte* memory_;
  MemoryStats stats_;
};

}  // namespace ridge
