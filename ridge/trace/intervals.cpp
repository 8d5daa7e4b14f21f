#include "ridge/trace/intervals.h"

#include <algorithm>

namespace ridge::trace {

Intervals merged(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& one) { return one.length() <= 0; });
  std::ranges::sort(intervals, {}, &Interval::begin_ns);
  std::size_t kept = 0;
  for (const Interval& one : intervals) {
    if (kept > 0 && one.begin_ns <= intervals[kept - 1].end_ns)
      intervals[kept - 1].end_ns = std::max(intervals[kept - 1].end_ns, one.end_ns);
    else
      intervals[kept++] = one;
  }
  intervals.resize(kept);
  return intervals;
}

std::int64_t length_ns(const Intervals& intervals) {
  std::int64_t length = 0;
  for (const Interval& one : intervals) length += one.length();
  return length;
}

Intervals without(const Intervals& a, const Intervals& b) {
  Intervals rest;
  std::size_t j = 0;
  for (const Interval& one : a) {
    std::int64_t at = one.begin_ns;
    while (j < b.size() && b[j].end_ns <= at) ++j;
    for (std::size_t k = j; k < b.size() && b[k].begin_ns < one.end_ns; ++k) {
      if (b[k].begin_ns > at) rest.push_back({at, b[k].begin_ns});
      at = std::max(at, b[k].end_ns);
    }
    if (at < one.end_ns) rest.push_back({at, one.end_ns});
  }
  return rest;
}

bool overlap(const Intervals& intervals, const Interval& one) {
  auto after = std::ranges::lower_bound(intervals, one.end_ns, {}, &Interval::begin_ns);
  return after != intervals.begin() && (--after)->end_ns > one.begin_ns;
}

}  // namespace ridge::trace
