#pragma once

#include <span>
#include <vector>

namespace ridge {

// Which of several hypotheses to reject, by their p-values, so that at most a share `rate` of what
// is rejected is so by chance, in expectation: those with the k smallest p-values, for the largest
// k such that the k-th smallest is at most rate * k / n (Benjamini and Hochberg, 1995).
std::vector<bool> discoveries(std::span<const double> p_values, double rate);

}  // namespace ridge
