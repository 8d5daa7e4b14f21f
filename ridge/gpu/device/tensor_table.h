#pragma once

// Tables of many tensors that one launch goes through. They travel as the kernel's parameter, so
// that a launch copies nothing and can be captured.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ridge/gpu/device/runtime.h"

namespace ridge::gpu {

#if defined(__HIP__)
inline constexpr std::size_t most_parameter_bytes = 4096;
#else
inline constexpr std::size_t most_parameter_bytes = 32764;  // since CUDA 12.1, on Volta and later
#endif

// The tensors of one launch, cut in tiles of equal size: tile t is one of tensor i if
// first_tile[i] <= t < first_tile[i + 1].
template <class Entry, int capacity>
struct TensorTable {
  int count = 0;
  std::uint32_t first_tile[capacity + 1] = {};
  Entry entry[capacity];

  std::uint32_t tiles() const { return first_tile[count]; }

  __device__ int find(std::uint32_t tile) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (first_tile[middle] <= tile)
        low = middle;
      else
        high = middle;
    }
    return low;
  }
};

// As many tensors as a table may have beside `others` bytes of parameters.
template <class Entry>
constexpr int table_capacity(std::size_t bytes, std::size_t others) {
  return static_cast<int>((bytes - others - 16) / (sizeof(Entry) + sizeof(std::uint32_t)));
}

// Calls run(table) for tables that hold all entries, in order: for one of the smallest size that
// does, or for several of the largest. Entry has a count of elements `n`.
template <std::size_t others, class Entry, class F>
void for_each_table(std::span<const Entry> entries, std::int64_t tile, const F& run) {
  const auto fill = [&]<int capacity>(std::span<const Entry> part) {
    TensorTable<Entry, capacity> table;
    for (const Entry& entry : part) {
      table.entry[table.count] = entry;
      const std::uint32_t first = table.first_tile[table.count++];
      table.first_tile[table.count] = first + blocks_for(entry.n, tile);
    }
    run(table);
  };
  constexpr int small = table_capacity<Entry>(4096, others);
  constexpr int large = table_capacity<Entry>(most_parameter_bytes, others);
  if (entries.size() == 1) return fill.template operator()<1>(entries);
  if (entries.size() <= small) return fill.template operator()<small>(entries);
  while (!entries.empty()) {
    const std::size_t count = std::min<std::size_t>(entries.size(), large);
    fill.template operator()<large>(entries.first(count));
    entries = entries.subspan(count);
  }
}

}  // namespace ridge::gpu
