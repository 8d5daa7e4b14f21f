#include "ridge/run/allocator.h"

#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/plan/lifetimes.h"

namespace ridge {
namespace {

// Small tensors share segments of this size; a larger tensor gets a segment of its own, whose
// remains are used for others when it is free.
constexpr std::size_t small_segment = std::size_t{2} << 20;
constexpr std::size_t granularity = std::size_t{64} << 10;

}  // namespace

CachingAllocator::CachingAllocator(Device& device)
    : source_{.allocate = [&device](std::size_t bytes) { return device.allocate(bytes); },
              .deallocate = [&device](void* memory,
                                      std::size_t bytes) { device.deallocate(memory, bytes); }} {}

CachingAllocator::~CachingAllocator() {
  for (const auto& [memory, bytes] : segments_) source_.deallocate(memory, bytes);
}

CachingAllocator::Blocks::iterator CachingAllocator::add_segment(std::size_t bytes) {
  const std::size_t least = (bytes + granularity - 1) / granularity * granularity;
  return add_segment(bytes, std::max(least, small_segment), least);
}

CachingAllocator::Blocks::iterator CachingAllocator::add_segment(std::size_t bytes,
                                                                 std::size_t size,
                                                                 std::size_t least) {
  char* memory = nullptr;
  try {
    memory = static_cast<char*>(source_.allocate(size));
  } catch (const OutOfMemoryError& error) {
    // What is free lies in pieces that are too small; whole ones may be worth more to the device.
    if (give_back_unused_segments()) return add_segment(bytes, size, least);
    if (least < size) return add_segment(bytes, least, least);
    throw OutOfMemoryError("{} ({} more asked for, {} held in tensors, {} reserved)", error.what(),
                           format_bytes(bytes), format_bytes(stats_.live),
                           format_bytes(stats_.reserved));
  }
  segments_.emplace(memory, size);
  stats_.reserved += size;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
  const auto block = blocks_.emplace(memory, Block{size, true, true}).first;
  free_.emplace(size, memory);
  return block;
}

bool CachingAllocator::give_back_unused_segments() {
  const std::size_t before = segments_.size();
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    const auto& [memory, bytes] = *segment;
    const auto block = blocks_.find(memory);
    if (!block->second.free || block->second.bytes != bytes) {
      ++segment;
      continue;
    }
    source_.deallocate(memory, bytes);
    stats_.reserved -= bytes;
    free_.erase({bytes, memory});
    blocks_.erase(block);
    segment = segments_.erase(segment);
  }
  return segments_.size() < before;
}

void* CachingAllocator::allocate(std::size_t bytes) {
  bytes = std::max((bytes + tensor_alignment - 1) / tensor_alignment, std::size_t{1}) *
          tensor_alignment;
  const auto fit = free_.lower_bound({bytes, nullptr});
  const auto block = fit != free_.end() ? blocks_.find(fit->second) : add_segment(bytes);
  free_.erase({block->second.bytes, block->first});
  block->second.free = false;
  if (const std::size_t rest = block->second.bytes - bytes; rest > 0) {
    block->second.bytes = bytes;
    char* const remainder = block->first + bytes;
    blocks_.emplace(remainder, Block{rest, true, false});
    free_.emplace(rest, remainder);
  }
  stats_.live += bytes;
  stats_.peak_live = std::max(stats_.peak_live, stats_.live);
  ++stats_.allocations;
  return block->first;
}

void CachingAllocator::merge_with_next(Blocks::iterator block) {
  const auto next = std::next(block);
  if (next == blocks_.end() || !next->second.free || next->second.starts_segment) return;
  free_.erase({next->second.bytes, next->first});
  free_.erase({block->second.bytes, block->first});
  block->second.bytes += next->second.bytes;
  free_.emplace(block->second.bytes, block->first);
  blocks_.erase(next);
}

void CachingAllocator::release(void* memory) {
  const auto block = blocks_.find(static_cast<char*>(memory));
  if (block == blocks_.end() || block->second.free)
    throw Error("memory was released that the allocator did not hand out");
  stats_.live -= block->second.bytes;
  block->second.free = true;
  free_.emplace(block->second.bytes, block->first);
  merge_with_next(block);
  if (!block->second.starts_segment)
    if (const auto before = std::prev(block); before->second.free) merge_with_next(before);
}

}  // namespace ridge
