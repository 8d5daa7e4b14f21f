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

// Which earlier pieces of work each piece must follow so that all memory ends up as if they had run
// one after another: one that writes what another reads or writes keeps its place relative to it.
// Nothing is listed that follows from the rest of the list.
std::vector<std::vector<std::size_t>> order_of(std::span<const std::vector<Access>> work);

}  // namespace ridge
