#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "ridge/device/device.h"

namespace ridge {

// What an allocator holds, in bytes; `live` counts the blocks handed out, `reserved` what the
// device gave us.
struct MemoryStats {
  std::size_t live = 0;
  std::size_t peak_live = 0;
  std::size_t reserved = 0;
  std::size_t peak_reserved = 0;
  std::size_t allocations = 0;  // since the start
};

// Takes memory from a device in large segments and hands out parts of them: best fit, split on
// allocation, merged with free neighbors on release, given back early only if the device has no
// more. After the first step of a training run the device sees no further request.
class CachingAllocator {
 public:
  // Where segments come from; OutOfMemoryError says that there are no more.
  struct Source {
    std::function<void*(std::size_t bytes)> allocate;
    std::function<void(void* memory, std::size_t bytes)> deallocate;
  };

  explicit CachingAllocator(Device& device);
  explicit CachingAllocator(Source source) : source_(std::move(source)) {}
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // `bytes` is rounded up to tensor_alignment. OutOfMemoryError says what was asked and held.
  void* allocate(std::size_t bytes);
  void release(void* memory);

  const MemoryStats& stats() const { return stats_; }
  void reset_peak() {
    stats_.peak_live = stats_.live;
    stats_.peak_reserved = stats_.reserved;
  }

 private:
  struct Block {
    std::size_t bytes = 0;
    bool free = false;
    bool starts_segment = false;  // not to be merged with the block before it
  };
  using Blocks = std::map<char*, Block>;

  Blocks::iterator add_segment(std::size_t bytes);
  // Adds a segment of `size` bytes, or of `least` if there is no more; both hold `bytes`.
  Blocks::iterator add_segment(std::size_t bytes, std::size_t size, std::size_t least);
  bool give_back_unused_segments();  // whether there was any
  void merge_with_next(Blocks::iterator block);

  Source source_;
  Blocks blocks_;                                 // by address
  std::set<std::pair<std::size_t, char*>> free_;  // by size, then address
  std::map<char*, std::size_t> segments_;
  MemoryStats stats_;
};

}  // namespace ridge
