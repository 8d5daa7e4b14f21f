#include "ridge/run/arena.h"

#include <algorithm>

#include "ridge/plan/lifetimes.h"

namespace ridge {
namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + tensor_alignment - 1) / tensor_alignment * tensor_alignment;
}

}  // namespace

void Arena::Usage::take(std::size_t bytes) {
  if (bytes == 0) return;  // a kernel without workspace
  ++allocations;
  taken += aligned(bytes);
  if (taken > released) peak = std::max(peak, taken - released);
}

void Arena::Usage::release(std::size_t bytes) { released += aligned(bytes); }

Arena::Arena(Device& device, std::size_t bytes, bool jointly)
    : device_(device),
      memory_(static_cast<std::byte*>(jointly ? device.allocate_jointly(bytes)
                                              : device.allocate(bytes))) {
  stats_.reserved = stats_.peak_reserved = bytes;
}

void* Arena::take(std::size_t offset, std::size_t bytes) {
  Usage usage;
  usage.take(bytes);
  count(usage);
  return at(offset);
}

void Arena::release(std::size_t bytes) { stats_.live -= aligned(bytes); }

void Arena::count(const Usage& usage) {
  stats_.allocations += usage.allocations;
  stats_.peak_live = std::max(stats_.peak_live, stats_.live + usage.peak);
  stats_.live += usage.taken;
  stats_.live -= usage.released;
}

}  // namespace ridge
