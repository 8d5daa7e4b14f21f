#include "ridge/base/mean_difference.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ridge {
namespace {

// The probability of |t| < sqrt(freedom) tan(angle): the density is cos(angle)^(freedom - 1), up to
// a factor. By Simpson's rule.
double within_angle(double angle, double freedom) {
  constexpr int intervals = 256;
  const double step = angle / intervals;
  double sum = 0;
  for (int i = 0; i <= intervals; ++i) {
    const double weight = i == 0 || i == intervals ? 1 : i % 2 == 1 ? 4 : 2;
    sum += weight * std::pow(std::cos(i * step), freedom - 1);
  }
  const double factor = std::exp(std::lgamma((freedom + 1) / 2) - std::lgamma(freedom / 2));
  return 2 * factor / std::sqrt(std::numbers::pi) * sum * step / 3;
}

}  // namespace

double student_t(double within, double freedom) {
  // With much freedom all lies near zero, where Simpson's rule must look.
  constexpr double much_freedom = 30, largest_t = 20;
  double low = 0;
  double high =
      freedom > much_freedom ? std::atan(largest_t / std::sqrt(freedom)) : std::numbers::pi / 2;
  for (int halving = 0; halving < 60; ++halving) {
    const double middle = (low + high) / 2;
    (within_angle(middle, freedom) < within ? low : high) = middle;
  }
  return std::sqrt(freedom) * std::tan((low + high) / 2);
}

std::optional<Interval> mean_difference_interval(std::span<const double> a,
                                                 std::span<const double> b) {
  if (std::min(a.size(), b.size()) < 2) return std::nullopt;
  const Statistics of_a = statistics_of(a), of_b = statistics_of(b);
  const auto count_a = static_cast<double>(a.size()), count_b = static_cast<double>(b.size());
  const double error_a = of_a.std_dev * of_a.std_dev / count_a;  // of the mean, squared
  const double error_b = of_b.std_dev * of_b.std_dev / count_b;
  const double error = error_a + error_b, difference = of_b.mean - of_a.mean;
  if (error <= 0) return Interval{difference, difference};
  const double freedom =
      error * error / (error_a * error_a / (count_a - 1) + error_b * error_b / (count_b - 1));
  const double reach = student_t(0.95, std::max(freedom, 1.0)) * std::sqrt(error);
  return Interval{difference - reach, difference + reach};
}

}  // namespace ridge
