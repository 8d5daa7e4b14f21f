#pragma once

// Pictures of a report of runs, in SVG.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ridge/base/statistics.h"

namespace ridge {

struct Bar {
  std::string label, value_text;
  double value = 0;                // positive
  std::optional<Interval> spread;  // around it
};

// Bars below each other, each with its spread as a line and its value in words; from 0, or as
// points on a logarithmic axis where the largest is more than 50 times the smallest.
std::string bars_svg(const std::string& title, std::span<const Bar> bars);

struct Curve {
  std::string label;
  double first_x = 1;          // of the first point; the others follow one by one
  std::vector<double> values;  // of which those that are no numbers are left out
};

// Curves over steps, a color for each, with their labels beside them.
std::string curves_svg(const std::string& title, const std::string& axis,
                       std::span<const Curve> curves);

}  // namespace ridge
