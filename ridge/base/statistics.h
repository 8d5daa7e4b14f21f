#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ridge {

// What is said of repeated measurements of one thing. Nothing here deletes a sample: outliers are
// counted, and whoever reports them says so.
struct Statistics {
  std::size_t count = 0;
  double mean = 0;
  double median = 0;
  double std_dev = 0;  // of a sample: over count - 1; 0 for fewer than two
  double min = 0;
  double max = 0;

  double variation() const { return mean != 0 ? std_dev / mean : 0; }
};

Statistics statistics_of(std::span<const double> values);  // all zero for none

// The value below which a fraction `q` in [0, 1] of the values lies, interpolated linearly between
// the two nearest (NumPy's default; type 7 of Hyndman and Fan, 1996). 0 for no values.
double percentile(std::span<const double> values, double q);

// The same of values in ascending order, for who asks more than once.
double percentile_of_sorted(std::span<const double> sorted, double q);

// The same where there are enough values for at least one to lie beyond it: 10 for 0.9, 100 for
// 0.99. Nothing where there are fewer, since it would only be the maximum under another name.
std::optional<double> tail_percentile(std::span<const double> values, double q);

struct Interval {
  double low = 0, high = 0;
};

// The 95 % interval of the median that holds for any distribution: from one of the values to
// another (the sign test's). None for fewer than 6 values, for then not even the smallest and the
// largest enclose the median that often.
std::optional<Interval> sign_interval(std::span<const double> values);

// How many times as large one thing is as another, and where that lies with 95 %. No interval where
// there were too few measurements for one.
struct Ratio {
  double value = 0;
  std::optional<Interval> interval;
};

// The median of a[i] / b[i], where a[i] and b[i] were measured together, so that what disturbed one
// disturbed the other: its interval is that of sign_interval().
Ratio paired_ratio(std::span<const double> a, std::span<const double> b);

// The ratio of the medians of two independent series. Its interval is by bootstrap (Efron, 1979):
// the middle 95 % of the ratios between medians of `resamples` samples of the same sizes, drawn
// with replacement. The same values and seed give the same interval anywhere.
Ratio ratio_of_medians(std::span<const double> a, std::span<const double> b, std::uint64_t seed = 0,
                       std::size_t resamples = 2000);

}  // namespace ridge
