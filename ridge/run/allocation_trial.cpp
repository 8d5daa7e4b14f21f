#include "ridge/run/allocation_trial.h"

#include <cstdint>
#include <map>
#include <memory>

#include "ridge/base/error.h"
#include "ridge/run/allocator.h"

namespace ridge {
namespace {

constexpr int runs = 3;  // later ones find the segments that earlier ones left

// Gives away addresses, and no memory.
CachingAllocator::Source addresses(std::size_t available, std::size_t granularity) {
  struct Left {
    std::size_t bytes;
    std::uintptr_t next = std::uintptr_t{1} << 32;
  };
  const auto rounded = [granularity](std::size_t bytes) {
    return (bytes + granularity - 1) / granularity * granularity;
  };
  const auto left = std::make_shared<Left>(Left{available});
  return {
      .allocate =
          [left, rounded](std::size_t bytes) {
            if (rounded(bytes) > left->bytes) throw OutOfMemoryError("no more is left");
            left->bytes -= rounded(bytes);
            left->next += rounded(bytes);
            return reinterpret_cast<void*>(left->next - rounded(bytes));
          },
      .deallocate = [left, rounded](void*, std::size_t bytes) { left->bytes += rounded(bytes); }};
}

}  // namespace

bool can_allocate(const Graph& graph, const Lifetimes& lifetimes,
                  std::span<const std::size_t> workspace, std::size_t packed_bytes,
                  std::size_t available, std::size_t granularity) {
  CachingAllocator allocator(addresses(available, granularity));
  std::map<ValueId, void*> alive;  // of one run
  const auto take = [&](ValueId storage) { return allocator.allocate(lifetimes.bytes[storage]); };
  try {
    for (ValueId id = 0; id < graph.value_count(); ++id)
      if (graph.info(id).persistent && lifetimes.storage[id] == id) take(id);
    if (packed_bytes > 0) allocator.allocate(packed_bytes);
    for (int run = 0; run < runs; ++run) {
      for (const auto& [storage, memory] : alive) allocator.release(memory);
      alive.clear();
      for (NodeId n = 0; n < graph.nodes().size(); ++n) {
        for (const ValueId storage : lifetimes.born[n]) alive[storage] = take(storage);
        if (workspace[n] > 0) allocator.release(allocator.allocate(workspace[n]));
        for (const ValueId storage : lifetimes.dead[n]) {
          allocator.release(alive.at(storage));
          alive.erase(storage);
        }
      }
    }
  } catch (const OutOfMemoryError&) {
    return false;
  }
  return true;
}

}  // namespace ridge
