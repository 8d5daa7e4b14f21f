#pragma once

#include <cstddef>
#include <span>

#include "ridge/study/signed_rank.h"

namespace ridge {

// By how much the values of `after` lie above those of `before`, which were not measured in pairs:
// the median of all their differences (Hodges and Lehmann, 1963), with the interval of the rank-sum
// test (Mann and Whitney, 1947) that leaves out at most `beyond` on each side. Exact; takes time in
// proportion to the square of the product of their numbers.
Center shift_between(std::span<const double> before, std::span<const double> after, double beyond);

// How many of the smallest rank sums of m and n values have together at most probability `beyond`;
// 0 if not even the smallest has.
std::size_t rank_sum_quantile(std::size_t m, std::size_t n, double beyond);

}  // namespace ridge
