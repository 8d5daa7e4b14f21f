#pragma once

// Series of measurements for tests: the ones in which otava_golden.py lets Apache Otava look for
// changes.

#include <cstdint>
#include <vector>

#include "ridge/study/change_points.h"

namespace ridge {

class SeriesRandom {
 public:
  explicit SeriesRandom(std::uint64_t seed) : state_(seed * 2654435761u + 12345) {}

  std::int64_t below(std::int64_t limit) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>(state_ >> 33) % limit;
  }
  // About 65536 times a normal deviate: a sum of twelve uniform ones.
  std::int64_t normal() {
    std::int64_t sum = 0;
    for (int i = 0; i < 12; ++i) sum += below(65536);
    return sum - 6 * std::int64_t{65536};
  }

 private:
  std::uint64_t state_;
};

struct TestSeries {
  std::vector<double> values;
  ChangePointOptions options;
  std::int64_t sum = 0;
};

// Steps, drifts, noise and outliers, as whole numbers, which no rounding changes.
inline TestSeries series_of(std::uint64_t seed) {
  // Python's division of integers, which rounds downwards.
  const auto over = [](std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); };
  SeriesRandom random(seed);
  constexpr std::int64_t sizes[] = {10, 30, 60, 100, 150, 200}, noises[] = {0, 1, 10, 50, 200},
                         factors[] = {80, 90, 102, 110, 150}, times[] = {2, 5};
  constexpr std::size_t windows[] = {50, 30, 20};
  constexpr double p_values[] = {0.001, 0.01, 0.05}, magnitudes[] = {0.0, 0.05};
  TestSeries series;
  const std::int64_t size = sizes[random.below(6)];
  std::int64_t level = std::int64_t{1} << (16 + random.below(8));
  const std::int64_t noise = noises[random.below(5)];  // in thousandths
  const bool steps = random.below(3) > 0, drifts = random.below(3) == 0,
             outliers = random.below(3) == 0;
  for (std::int64_t i = 0; i < size; ++i) {
    if (steps && random.below(100) < 3) level = level * factors[random.below(5)] / 100;
    std::int64_t value = level + over(level * noise * random.normal(), 65536 * 1000);
    if (drifts) value += level * i * 2 / 1000;
    if (outliers && random.below(100) < 5) value *= times[random.below(2)];
    series.values.push_back(static_cast<double>(value));
    series.sum += value;
  }
  series.options.window = windows[random.below(3)];
  series.options.max_p_value = p_values[random.below(3)];
  series.options.min_magnitude = magnitudes[random.below(2)];
  return series;
}

}  // namespace ridge
