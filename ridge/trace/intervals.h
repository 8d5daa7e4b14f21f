#pragma once

#include <cstdint>
#include <vector>

namespace ridge::trace {

struct Interval {
  std::int64_t begin_ns = 0, end_ns = 0;

  std::int64_t length() const { return end_ns - begin_ns; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

// Ascending, apart from each other, none empty.
using Intervals = std::vector<Interval>;

Intervals merged(std::vector<Interval> intervals);  // in any order
std::int64_t length_ns(const Intervals& intervals);
// The parts of the first that are not in the second.
Intervals without(const Intervals& a, const Intervals& b);
// Whether some of them have time in common with one.
bool overlap(const Intervals& intervals, const Interval& one);

}  // namespace ridge::trace
