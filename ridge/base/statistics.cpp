#include "ridge/base/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ridge/base/random.h"

namespace ridge {
namespace {

std::vector<double> sorted_copy(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  return sorted;
}

double median_of_sorted(std::span<const double> sorted) {
  const std::size_t n = sorted.size();
  return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

// Medians of samples of the same size as `values`, drawn from them with replacement.
std::vector<double> resampled_medians(std::span<const double> values, std::uint64_t seed,
                                      std::uint64_t stream, std::size_t resamples) {
  const std::vector<double> sorted = sorted_copy(values);
  const auto n = static_cast<std::uint32_t>(sorted.size());
  std::vector<double> medians(resamples), sample(n);
  std::uint64_t draw = 0;
  for (double& median : medians) {
    for (double& value : sample) value = sorted[uniform_integer(n, seed, stream, draw++)];
    std::ranges::sort(sample);
    median = median_of_sorted(sample);
  }
  return medians;
}

}  // namespace

Statistics statistics_of(std::span<const double> values) {
  if (values.empty()) return {};
  const std::vector<double> sorted = sorted_copy(values);
  const auto n = static_cast<double>(sorted.size());
  Statistics s{.count = sorted.size(), .min = sorted.front(), .max = sorted.back()};
  s.mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / n;
  s.median = median_of_sorted(sorted);
  double squares = 0;
  for (const double value : sorted) squares += (value - s.mean) * (value - s.mean);
  if (sorted.size() > 1) s.std_dev = std::sqrt(squares / (n - 1));
  return s;
}

double percentile_of_sorted(std::span<const double> sorted, double q) {
  if (sorted.empty()) return 0;
  const double position = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], position - static_cast<double>(below));
}

double percentile(std::span<const double> values, double q) {
  return percentile_of_sorted(sorted_copy(values), q);
}

std::optional<double> tail_percentile(std::span<const double> values, double q) {
  // A little less than one, because 100 * (1 - 0.99) is.
  if (static_cast<double>(values.size()) * (1 - q) < 1 - 1e-9) return std::nullopt;
  return percentile(values, q);
}

// Between the k-th smallest and the k-th largest of n values lies the median unless fewer than k of
// them fall on one side of it, each of which is as likely as in n tosses of a coin.
std::optional<Interval> sign_interval(std::span<const double> values) {
  const std::vector<double> sorted = sorted_copy(values);
  const std::size_t n = sorted.size();
  std::size_t k = 0;
  double probability = std::exp2(-static_cast<double>(n)), beyond = probability;
  while (k < n / 2 && 2 * beyond <= 0.05) {
    ++k;
    probability *= static_cast<double>(n - k + 1) / static_cast<double>(k);
    beyond += probability;
  }
  if (k == 0) return std::nullopt;
  return Interval{sorted[k - 1], sorted[n - k]};
}

Ratio paired_ratio(std::span<const double> a, std::span<const double> b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) ratios.push_back(a[i] / b[i]);
  return {percentile(ratios, 0.5), sign_interval(ratios)};
}

Ratio ratio_of_medians(std::span<const double> a, std::span<const double> b, std::uint64_t seed,
                       std::size_t resamples) {
  constexpr std::size_t fewest = 6;  // as for sign_interval()
  Ratio ratio{percentile(a, 0.5) / percentile(b, 0.5), std::nullopt};
  if (std::min(a.size(), b.size()) < fewest) return ratio;
  std::vector<double> ratios = resampled_medians(a, seed, stream_of("numerator"), resamples);
  const std::vector<double> below = resampled_medians(b, seed, stream_of("denominator"), resamples);
  for (std::size_t i = 0; i < ratios.size(); ++i) ratios[i] /= below[i];
  std::ranges::sort(ratios);
  ratio.interval = {percentile_of_sorted(ratios, 0.025), percentile_of_sorted(ratios, 0.975)};
  return ratio;
}

}  // namespace ridge
