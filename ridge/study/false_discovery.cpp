#include "ridge/study/false_discovery.h"

#include <algorithm>
#include <cstddef>

namespace ridge {

std::vector<bool> discoveries(std::span<const double> p_values, double rate) {
  std::vector<double> sorted(p_values.begin(), p_values.end());
  std::ranges::sort(sorted);
  const auto n = static_cast<double>(sorted.size());
  double threshold = -1;  // no p-value is as small
  for (std::size_t k = 0; k < sorted.size(); ++k)
    if (sorted[k] <= rate * static_cast<double>(k + 1) / n) threshold = sorted[k];
  std::vector<bool> found;
  for (const double p : p_values) found.push_back(p <= threshold);
  return found;
}

}  // namespace ridge
