#include "ridge/study/signed_rank.h"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <utility>
#include <vector>

namespace ridge {
namespace {

constexpr std::size_t most_exact = 300;

// The probabilities that the ranks 1 to n, each taken by the toss of a coin, sum to 0, 1, 2, ..: a
// rank more takes half of each probability to a sum that is larger by it.
std::vector<double> probabilities_of_sums(std::size_t n) {
  std::vector<double> probability(n * (n + 1) / 2 + 1, 0);
  probability[0] = 1;
  std::size_t largest = 0;
  for (std::size_t rank = 1; rank <= n; ++rank) {
    largest += rank;
    for (std::size_t sum = largest + 1; sum-- > 0;)
      probability[sum] = (probability[sum] + (sum >= rank ? probability[sum - rank] : 0)) / 2;
  }
  return probability;
}

std::size_t exact_quantile(std::size_t n, double beyond) {
  const std::vector<double> probability = probabilities_of_sums(n);
  std::size_t count = 0;
  double sum = 0;
  while (count < probability.size() && sum + probability[count] <= beyond)
    sum += probability[count++];
  return count;
}

std::pair<double, double> moments_of_sums(std::size_t n) {
  const auto ranks = static_cast<double>(n);
  return {ranks * (ranks + 1) / 4, std::sqrt(ranks * (ranks + 1) * (2 * ranks + 1) / 24)};
}

std::size_t normal_quantile(std::size_t n, double beyond) {
  const auto [mean, deviation] = moments_of_sums(n);
  const double z = boost::math::quantile(boost::math::normal(), beyond);
  return static_cast<std::size_t>(std::max(0.0, std::floor(mean + z * deviation - 0.5)));
}

// The means of all pairs of differences, each with itself too. A difference's own distance from the
// center, over its scale, and that of another add to more than 0 where the mean of both with the
// weights 1 / scale lies above the center: as many of these means as the sum of signed ranks.
std::vector<double> means_of_pairs(std::span<const double> differences,
                                   std::span<const double> scales) {
  const auto weight = [&](std::size_t i) { return scales.empty() ? 1 : 1 / scales[i]; };
  std::vector<double> means;
  means.reserve(differences.size() * (differences.size() + 1) / 2);
  for (std::size_t i = 0; i < differences.size(); ++i)
    for (std::size_t j = 0; j <= i; ++j)
      means.push_back((weight(i) * differences[i] + weight(j) * differences[j]) /
                      (weight(i) + weight(j)));
  return means;
}

}  // namespace

std::size_t signed_rank_quantile(std::size_t n, double beyond) {
  return n <= most_exact ? exact_quantile(n, beyond) : normal_quantile(n, beyond);
}

double signed_rank_p_value(std::span<const double> differences, std::span<const double> scales) {
  const auto below = static_cast<std::size_t>(std::ranges::count_if(
      means_of_pairs(differences, scales), [](double mean) { return mean <= 0; }));
  if (differences.size() <= most_exact) {
    const std::vector<double> probability = probabilities_of_sums(differences.size());
    double sum = 0;
    for (std::size_t i = 0; i <= below; ++i) sum += probability[i];
    return std::min(1.0, sum);
  }
  const auto [mean, deviation] = moments_of_sums(differences.size());
  return boost::math::cdf(boost::math::normal(mean, deviation), static_cast<double>(below) + 0.5);
}

Center center_of(std::span<const double> differences, double below, double above,
                 std::span<const double> scales) {
  std::vector<double> means = means_of_pairs(differences, scales);
  if (means.empty()) return {};
  std::ranges::sort(means);
  const std::size_t n = means.size();
  Center center{(means[(n - 1) / 2] + means[n / 2]) / 2, std::nullopt};
  // The center lies below the k-th smallest mean only if fewer than k means, which is the sum of
  // signed ranks, lie below it.
  const std::size_t low = signed_rank_quantile(differences.size(), below),
                    high = signed_rank_quantile(differences.size(), above);
  if (low > 0 && high > 0 && low + high <= n)
    center.interval = Interval{means[low - 1], means[n - high]};
  return center;
}

}  // namespace ridge
