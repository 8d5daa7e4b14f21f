#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "ridge/base/statistics.h"

namespace ridge {

// The center of differences that are as likely to lie above it as below, and where it lies. The
// level of `interval` is at least that asked for, whatever the distribution of each difference, and
// however it changes from one to the next.
struct Center {
  double value = 0;
  std::optional<Interval> interval;  // none where there are too few differences for that level
};

// The median of the means of all pairs of differences (Hodges and Lehmann, 1963), with the interval
// of Wilcoxon's signed ranks that leaves out at most `below` and `above` on its two sides. Exact
// for up to 300 differences, beyond that by the normal distribution. Takes time and memory in
// proportion to the square of their number.
//
// `scales`, one for each difference or none, are positive. What has ranks then are the distances
// from the center in units of their scales, so that the mean of a pair has the weights 1 / scale;
// with variances as scales these are the weights of least error. The level holds if no scale would
// be another one had its difference come out on the other side of the center, as is so of the
// spread of what was measured.
Center center_of(std::span<const double> differences, double below, double above,
                 std::span<const double> scales = {});
inline Center center_of(std::span<const double> differences, double beyond) {
  return center_of(differences, beyond, beyond);
}

// The probability of differences that lie as far above 0 as these, or farther, if their center is
// at most 0 (one-sided). It is at most `beyond` where the interval of center_of() lies above 0.
double signed_rank_p_value(std::span<const double> differences,
                           std::span<const double> scales = {});

// How many of the smallest sums of signed ranks 1 to n have together at most probability `beyond`;
// 0 if not even the smallest has. An interval leaves out that many pairs on each side.
std::size_t signed_rank_quantile(std::size_t n, double beyond);

}  // namespace ridge
