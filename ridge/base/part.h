#pragma once

#include <algorithm>
#include <cstdint>

namespace ridge {

// Elements [first, first + count) of a tensor: what one rank has of it.
struct Part {
  std::int64_t first = 0, count = 0;
  bool operator==(const Part&) const = default;
};

// Returns a rank's part of so many elements. Parts are equal and whole cache lines of f32; the last
// ones may be shorter, or empty.
constexpr Part part_of(std::int64_t elements, std::int64_t rank, std::int64_t ranks) {
  constexpr std::int64_t line = 16;
  const std::int64_t lines = (elements + line - 1) / line;
  const std::int64_t size = (lines + ranks - 1) / ranks * line;
  const std::int64_t first = std::min(elements, rank * size);
  return {first, std::min(size, elements - first)};
}

}  // namespace ridge
