#pragma once

#include <cstdint>

namespace ridge {

struct Range {
  std::int64_t begin, end;
  constexpr std::int64_t size() const { return end - begin; }
};

// Part `i` of `parts` that differ by at most one.
constexpr Range part_of(Range all, std::int64_t i, std::int64_t parts) {
  return {all.begin + all.size() * i / parts, all.begin + all.size() * (i + 1) / parts};
}

}  // namespace ridge
