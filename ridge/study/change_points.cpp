#include "ridge/study/change_points.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <optional>

#include "ridge/base/error.h"

namespace ridge {
namespace {

struct Level {
  double mean = 0, deviation = 0;  // the deviation is that of a population: over the count
};

// Sums in pairs of halves (Higham, 1993), in the blocks in which NumPy does: changes that are
// equally certain are then equal to the last bit here as there, and the same one of them counts.
template <class Term>
double pairwise_sum(std::size_t begin, std::size_t end, const Term& term) {
  constexpr std::size_t lanes = 8, block = 128;
  const std::size_t n = end - begin;
  if (n > block) {
    const std::size_t middle = begin + n / 2 - n / 2 % lanes;
    return pairwise_sum(begin, middle, term) + pairwise_sum(middle, end, term);
  }
  double sums[lanes] = {};
  std::size_t i = begin;
  if (n >= lanes)
    for (; i + lanes <= end; i += lanes)
      for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += term(i + lane);
  double sum =
      ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  for (; i < end; ++i) sum += term(i);
  return sum;
}

Level level_of(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  const double mean = pairwise_sum(0, values.size(), [&](std::size_t i) { return values[i]; }) / n;
  const double squares = pairwise_sum(
      0, values.size(), [&](std::size_t i) { return (values[i] - mean) * (values[i] - mean); });
  return {mean, std::sqrt(squares / n)};
}

// The p-value of Student's two-sided t-test for equal variances; NaN for two equal constants.
double t_test(const Level& a, std::size_t count_a, const Level& b, std::size_t count_b) {
  const auto n = static_cast<double>(count_a), m = static_cast<double>(count_b);
  const double freedom = n + m - 2;
  if (freedom <= 0) return 1;
  const double variance =
      ((n - 1) * a.deviation * a.deviation + (m - 1) * b.deviation * b.deviation) / freedom;
  const double t = std::abs((a.mean - b.mean) / std::sqrt(variance * (1 / n + 1 / m)));
  if (std::isnan(t)) return std::numeric_limits<double>::quiet_NaN();
  if (std::isinf(t)) return 0;
  const boost::math::students_t distribution(freedom);
  return 2 * boost::math::cdf(boost::math::complement(distribution, t));
}

// A change at `index` between two stretches that begin at `begin` and end before `end`.
ChangePoint tested(std::span<const double> series, std::size_t begin, std::size_t index,
                   std::size_t end, double dissimilarity) {
  const Level before = level_of(series.subspan(begin, index - begin));
  const Level after = level_of(series.subspan(index, end - index));
  return {.index = index,
          .dissimilarity = dissimilarity,
          .mean_before = before.mean,
          .mean_after = after.mean,
          .deviation_before = before.deviation,
          .deviation_after = after.deviation,
          .p_value = t_test(before, index - begin, after, end - index)};
}

struct Candidate {
  std::size_t index = 0;
  double dissimilarity = -std::numeric_limits<double>::infinity();
};

// Finds where a stretch of a window falls into the two most dissimilar parts: the split t and the
// end k of the second part that maximize, with X the n values in [begin, t) and Y the m values in
// [t, k),
//   2 / (n + m) sum |X_i - Y_j|  -  2 m / ((n + m) (n - 1)) sum_{i<j} |X_i - X_j|
//                                -  2 n / ((n + m) (m - 1)) sum_{i<j} |Y_i - Y_j|.
// All sums are differences of two tables of distances: each value's to all before it, and to those
// behind it up to k.
class Dissimilarity {
 public:
  explicit Dissimilarity(std::span<const double> window)
      : window_(window),
        to_earlier_(window.size(), 0),
        to_later_(window.size() * window.size(), 0) {
    for (std::size_t t = 0; t < window.size(); ++t) {
      for (std::size_t i = 0; i < t; ++i) to_earlier_[t] += distance(i, t);
      double sum = 0;
      for (std::size_t k = t + 1; k < window.size(); ++k)
        to_later_[t * window.size() + k] = sum += distance(t, k);
    }
  }

  // Of equal ones the first.
  Candidate most(std::size_t begin, std::size_t end) const {
    const auto length = end - begin;
    // Of Y, the distances within it by its first value t, for each k: sums from the last t upwards.
    std::vector<double> within_y(length * length, 0);
    for (std::size_t t = end - 1; t-- > begin + 1;)
      for (std::size_t k = t + 2; k <= end; ++k)
        within_y[(t - begin) * length + k - begin - 1] =
            within_y[(t + 1 - begin) * length + k - begin - 1] + to_later(t, k);
    Candidate best;
    std::vector<double> from_x(length,
                               0);  // for each k, from values of X to all behind them up to k
    double within_x = 0;
    for (std::size_t t = begin + 1; t < end; ++t) {
      if (t > begin + 1) within_x += to_earlier(t - 1, begin);
      for (std::size_t k = t; k <= end; ++k) from_x[k - begin - 1] += to_later(t - 1, k);
      for (std::size_t k = t + 1; k <= end; ++k) {
        const std::size_t column = k - begin - 1;
        const auto n = static_cast<double>(t - begin), m = static_cast<double>(k - t);
        double value = 2 / (n + m) * (from_x[column] - within_x);
        if (n > 1) value -= 2 * m / ((n + m) * (n - 1)) * within_x;
        if (m > 1) value -= 2 * n / ((n + m) * (m - 1)) * within_y[(t - begin) * length + column];
        if (value > best.dissimilarity) best = {t, value};
      }
    }
    return best;
  }

 private:
  double distance(std::size_t i, std::size_t j) const { return std::abs(window_[i] - window_[j]); }
  // From value t to those in [begin, t).
  double to_earlier(std::size_t t, std::size_t begin) const {
    double before = 0;
    for (std::size_t i = 0; i < begin; ++i) before += distance(i, t);
    return to_earlier_[t] - before;
  }
  // From value t to those in (t, k).
  double to_later(std::size_t t, std::size_t k) const {
    return to_later_[t * window_.size() + k - 1];
  }

  std::span<const double> window_;
  std::vector<double> to_earlier_, to_later_;
};

// Begin and end of the stretches between changes: bounds[i] to bounds[i + 1].
std::vector<std::size_t> bounds_of(const std::vector<ChangePoint>& changes, std::size_t size) {
  std::vector<std::size_t> bounds{0};
  for (const ChangePoint& change : changes) bounds.push_back(change.index);
  bounds.push_back(size);
  return bounds;
}

// Splits a window at its most dissimilar place, and the parts again, as long as it is significant.
std::vector<ChangePoint> split(std::span<const double> window, double max_p_value) {
  const Dissimilarity dissimilarity(window);
  std::vector<ChangePoint> changes;
  for (;;) {
    const std::vector<std::size_t> bounds = bounds_of(changes, window.size());
    std::optional<std::size_t> stretch;
    Candidate best;
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
      if (bounds[i + 1] - bounds[i] < 2) continue;
      const Candidate candidate = dissimilarity.most(bounds[i], bounds[i + 1]);
      if (candidate.dissimilarity > best.dissimilarity) {
        best = candidate;
        stretch = i;
      }
    }
    if (!stretch) return changes;
    const ChangePoint change =
        tested(window, bounds[*stretch], best.index, bounds[*stretch + 1], best.dissimilarity);
    if (!(change.p_value <= max_p_value)) return changes;
    changes.insert(changes.begin() + static_cast<std::ptrdiff_t>(*stretch), change);
  }
}

// Tests a change again, between its neighbors in the list.
void test_again(std::vector<ChangePoint>& changes, std::size_t i, std::span<const double> series) {
  if (i >= changes.size()) return;
  const std::vector<std::size_t> bounds = bounds_of(changes, series.size());
  changes[i] = tested(series, bounds[i], bounds[i + 1], bounds[i + 2], changes[i].dissimilarity);
}

// The changes that any window shows at the weaker level of significance.
std::vector<ChangePoint> weak_changes(std::span<const double> series,
                                      const ChangePointOptions& options) {
  const double p = options.max_p_value;
  const double weak_p_value = p < 0.05 ? 10 * p : p < 0.5 ? 2 * p : p;
  std::vector<ChangePoint> changes;
  for (std::size_t begin = 0; begin < series.size();) {
    const std::size_t size = std::min(options.window, series.size() - begin);
    const std::vector<ChangePoint> found = split(series.subspan(begin, size), weak_p_value);
    const std::size_t next = begin + options.window / 2;
    for (ChangePoint change : found) {
      change.index += begin;
      if (std::ranges::find(changes, change.index, &ChangePoint::index) == changes.end())
        changes.push_back(change);
    }
    begin = std::max(next, found.empty() ? 0 : begin + found.back().index);
  }
  std::ranges::sort(changes, {}, &ChangePoint::index);
  for (std::size_t i = 0; i < changes.size(); ++i) test_again(changes, i, series);
  return changes;
}

// Whether `a` is to be left out rather than `b`: an insignificant change before a small one.
bool is_less_certain(const ChangePoint& a, const ChangePoint& b) { return a.p_value > b.p_value; }

}  // namespace

double ChangePoint::magnitude() const {
  const double forward = mean_before == 0 ? 0 : mean_after / mean_before - 1;
  const double backward = mean_after == 0 ? 0 : mean_before / mean_after - 1;
  return std::max(std::abs(forward), std::abs(backward));
}

std::vector<ChangePoint> change_points(std::span<const double> series,
                                       const ChangePointOptions& options) {
  if (options.window < 2)
    throw UsageError("change points are searched in windows of at least 2 values, not of {}",
                     options.window);
  std::vector<ChangePoint> changes = weak_changes(series, options);
  while (!changes.empty()) {
    auto weakest = std::ranges::min_element(changes, is_less_certain);
    if (weakest->p_value < options.max_p_value) {
      weakest = std::ranges::min_element(changes, {}, &ChangePoint::magnitude);
      if (weakest->magnitude() > options.min_magnitude) break;
    }
    // The stretches beside the change that goes become one. Otava tests the two changes after it
    // again and not the one before it, and so do we.
    const auto i = static_cast<std::size_t>(weakest - changes.begin());
    changes.erase(weakest);
    test_again(changes, i, series);
    test_again(changes, i + 1, series);
  }
  return changes;
}

}  // namespace ridge
