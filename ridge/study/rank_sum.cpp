#include "ridge/study/rank_sum.h"

#include <algorithm>
#include <vector>

namespace ridge {
namespace {

// The probabilities that U = 0, 1, .., m n of the m n pairs of m and n values are in descending
// order, where all orders are alike: the largest of all is one of the m with probability m / (m +
// n) and then above all n others.
std::vector<double> probabilities_of_pairs(std::size_t m, std::size_t n) {
  std::vector<std::vector<double>> above(n + 1);  // by the second number, for the first one's
  for (std::size_t j = 0; j <= n; ++j) above[j] = {1};
  for (std::size_t i = 1; i <= m; ++i) {
    std::vector<std::vector<double>> row(n + 1);
    row[0] = {1};
    for (std::size_t j = 1; j <= n; ++j) {
      row[j].assign(i * j + 1, 0);
      const double share = static_cast<double>(i) / static_cast<double>(i + j);
      for (std::size_t u = 0; u < above[j].size(); ++u) row[j][u + j] += share * above[j][u];
      for (std::size_t u = 0; u < row[j - 1].size(); ++u) row[j][u] += (1 - share) * row[j - 1][u];
    }
    above = std::move(row);
  }
  return above[n];
}

}  // namespace

std::size_t rank_sum_quantile(std::size_t m, std::size_t n, double beyond) {
  const std::vector<double> probability = probabilities_of_pairs(m, n);
  std::size_t count = 0;
  double sum = 0;
  while (count < probability.size() && sum + probability[count] <= beyond)
    sum += probability[count++];
  return count;
}

Center shift_between(std::span<const double> before, std::span<const double> after, double beyond) {
  std::vector<double> differences;
  for (const double a : before)
    for (const double b : after) differences.push_back(b - a);
  if (differences.empty()) return {};
  std::ranges::sort(differences);
  const std::size_t n = differences.size();
  Center center{(differences[(n - 1) / 2] + differences[n / 2]) / 2, std::nullopt};
  if (const std::size_t k = rank_sum_quantile(before.size(), after.size(), beyond);
      k > 0 && 2 * k <= n)
    center.interval = Interval{differences[k - 1], differences[n - k]};
  return center;
}

}  // namespace ridge
