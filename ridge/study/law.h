#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/statistics.h"

namespace ridge {

// How a quantity y follows from another one x.
enum class LawForm : std::uint8_t {
  linear,     // y = c0 + c1 x
  quadratic,  // y = c0 + c1 x + c2 x^2
  power,      // y = c0 x^c1
};

struct Law {
  LawForm form = LawForm::linear;
  std::vector<double> coefficients;
  // Where each lies with 95 %; empty if there are no more points than coefficients.
  std::vector<Interval> intervals;
  double error = 0;  // the root mean square of the relative residuals

  double at(double x) const;
};

// The law of a form that fits points of positive x and y best, by least squares of the relative
// residuals: a step that is measured takes a time that is off by some percent, however long it is.
// Of a power the logarithms are fitted. None for fewer different x than coefficients.
std::optional<Law> fit(LawForm form, std::span<const double> x, std::span<const double> y);

// The simpler of the linear and the quadratic law that fits: the quadratic one where its last
// coefficient is clearly positive (its interval excludes 0, or there is no noise) and matters for
// one percent of y at the largest x.
std::optional<Law> fit_growth(std::span<const double> x, std::span<const double> y);

// "34.5 + 11.2 x + 0.0015 x^2", "2.1 x^0.93", with four digits.
std::string to_string(const Law& law, std::string_view x = "x");

}  // namespace ridge
