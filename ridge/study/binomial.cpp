#include "ridge/study/binomial.h"

#include <boost/math/distributions/beta.hpp>

namespace ridge {

Interval binomial_interval(std::size_t successes, std::size_t trials) {
  constexpr double beyond = 0.025;  // on each side
  const auto k = static_cast<double>(successes), n = static_cast<double>(trials);
  const auto quantile = [](double a, double b, double share) {
    return boost::math::quantile(boost::math::beta_distribution<>(a, b), share);
  };
  return {successes == 0 ? 0.0 : quantile(k, n - k + 1, beyond),
          successes == trials ? 1.0 : quantile(k + 1, n - k, 1 - beyond)};
}

}  // namespace ridge
