#include "ridge/cpu/rotations.h"

#include <cmath>

namespace ridge {

// In double and then rounded, because a float angle of thousands of radians would be off by as much
// as 1e-4.
void Rotations::fill() {
  if (!cos_.empty()) return;
  std::vector<double> frequency;
  for (std::int64_t i = 0; i < pairs_; ++i)
    frequency.push_back(std::pow(static_cast<double>(theta_),
                                 -static_cast<double>(i) / static_cast<double>(pairs_)));
  cos_.reserve(static_cast<std::size_t>(positions_ * pairs_));
  sin_.reserve(static_cast<std::size_t>(positions_ * pairs_));
  for (std::int64_t s = 0; s < positions_; ++s)
    for (const double f : frequency) {
      const double angle = static_cast<double>(s) * f;
      cos_.push_back(static_cast<float>(std::cos(angle)));
      sin_.push_back(static_cast<float>(std::sin(angle)));
    }
}

std::shared_ptr<Rotations> RotationTables::get(float theta, std::int64_t pairs,
                                               std::int64_t positions) {
  std::erase_if(tables_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Rotations>& entry = tables_[{theta, pairs, positions}];
  std::shared_ptr<Rotations> table = entry.lock();
  if (!table) entry = table = std::make_shared<Rotations>(theta, pairs, positions);
  return table;
}

}  // namespace ridge
