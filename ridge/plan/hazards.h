#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ridge {

// A range of memory that some work reads, or writes and perhaps reads.
struct Access {
  std::size_t begin = 0, end = 0;  // in bytes
  bool writes = false;

  bool conflicts_with(const Access& other) const {
    return (writes || other.writes) && begin < other.end && other.begin < end;
  }
};

// For each launch, the earlier ones that it must follow so that memory ends up as if all had run
// one after another: two that touch the same bytes keep their order unless both only read.
// Dependencies that follow from others are not listed.
std::vector<std::vector<std::size_t>> order_of(std::span<const std::vector<Access>> work);

}  // namespace ridge
