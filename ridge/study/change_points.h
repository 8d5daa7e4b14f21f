#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ridge {

// A place in a series of measurements where their level changes.
struct ChangePoint {
  std::size_t index = 0;  // of the first value after the change
  double dissimilarity = 0;
  // Of the values between the change before and this one, and between this one and the next.
  double mean_before = 0, mean_after = 0;
  double deviation_before = 0, deviation_after = 0;
  double p_value = 1;  // of a two-sided t-test of the two

  // The larger of the relative changes forward and backward.
  double magnitude() const;
};

struct ChangePointOptions {
  std::size_t window = 50;     // values that are searched together; at least 2
  double max_p_value = 0.001;  // of a change that is reported
  double min_magnitude = 0;    // smaller changes are not reported
};

// The changes of a series, by index. E-divisive (Matteson and James, 2014, arXiv:1306.4933) in
// windows, with a t-test in place of permutations, so that the same series gives the same changes;
// weak ones are merged afterwards (Fleming et al., 2023, doi:10.1145/3578244.3583719). Finds what
// Apache Otava finds with the same options. Takes time in proportion to size * window^2.
std::vector<ChangePoint> change_points(std::span<const double> series,
                                       const ChangePointOptions& options = {});

}  // namespace ridge
