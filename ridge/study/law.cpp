#include "ridge/study/law.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <set>

namespace ridge {
namespace {

constexpr std::size_t most_terms = 3;
using Row = std::array<double, most_terms>;

std::size_t terms_of(LawForm form) { return form == LawForm::quadratic ? 3 : 2; }

// The inverse of a symmetric positive matrix, by Gauss and Jordan with the largest pivot; none if
// it has not full rank.
std::optional<std::array<Row, most_terms>> inverse_of(std::array<Row, most_terms> m,
                                                      std::size_t n) {
  std::array<Row, most_terms> inverse{};
  for (std::size_t i = 0; i < n; ++i) inverse[i][i] = 1;
  for (std::size_t column = 0; column < n; ++column) {
    std::size_t pivot = column;
    for (std::size_t row = column; row < n; ++row)
      if (std::abs(m[row][column]) > std::abs(m[pivot][column])) pivot = row;
    if (std::abs(m[pivot][column]) < 1e-14) return std::nullopt;
    std::swap(m[column], m[pivot]);
    std::swap(inverse[column], inverse[pivot]);
    const double scale = m[column][column];
    for (std::size_t k = 0; k < n; ++k) m[column][k] /= scale, inverse[column][k] /= scale;
    for (std::size_t row = 0; row < n; ++row) {
      if (row == column) continue;
      const double factor = m[row][column];
      for (std::size_t k = 0; k < n; ++k) {
        m[row][k] -= factor * m[column][k];
        inverse[row][k] -= factor * inverse[column][k];
      }
    }
  }
  return inverse;
}

struct Solution {
  Row coefficients{}, deviations{};  // the standard error of each coefficient
};

// Least squares: rows[i] . coefficients = values[i].
std::optional<Solution> solve(const std::vector<Row>& rows, const std::vector<double>& values,
                              std::size_t terms) {
  std::array<Row, most_terms> normal{};
  Row right{};
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t a = 0; a < terms; ++a) {
      right[a] += rows[i][a] * values[i];
      for (std::size_t b = 0; b < terms; ++b) normal[a][b] += rows[i][a] * rows[i][b];
    }
  const auto inverse = inverse_of(normal, terms);
  if (!inverse) return std::nullopt;
  Solution solution;
  for (std::size_t a = 0; a < terms; ++a)
    for (std::size_t b = 0; b < terms; ++b) solution.coefficients[a] += (*inverse)[a][b] * right[b];
  double squares = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    double residual = values[i];
    for (std::size_t a = 0; a < terms; ++a) residual -= rows[i][a] * solution.coefficients[a];
    squares += residual * residual;
  }
  if (rows.size() > terms)
    for (std::size_t a = 0; a < terms; ++a)
      solution.deviations[a] = std::sqrt(std::max(0.0, (*inverse)[a][a]) * squares /
                                         static_cast<double>(rows.size() - terms));
  return solution;
}

// From relative x, where the largest is 1, so that the matrix stays well-conditioned, back to x.
double scale_of(LawForm form, std::size_t term, double largest) {
  return form == LawForm::power ? 1 : std::pow(largest, -static_cast<double>(term));
}

}  // namespace

double Law::at(double x) const {
  if (form == LawForm::power) return coefficients[0] * std::pow(x, coefficients[1]);
  double y = 0;
  for (std::size_t i = coefficients.size(); i-- > 0;) y = y * x + coefficients[i];
  return y;
}

std::optional<Law> fit(LawForm form, std::span<const double> x, std::span<const double> y) {
  const std::size_t terms = terms_of(form);
  if (std::set<double>(x.begin(), x.end()).size() < terms) return std::nullopt;
  const double largest = *std::ranges::max_element(x);
  std::vector<Row> rows;
  std::vector<double> values;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double u = x[i] / largest;
    if (form == LawForm::power) {
      rows.push_back({1, std::log(x[i]), 0});
      values.push_back(std::log(y[i]));
    } else {
      rows.push_back({1 / y[i], u / y[i], u * u / y[i]});
      values.push_back(1);
    }
  }
  const auto solution = solve(rows, values, terms);
  if (!solution) return std::nullopt;
  Law law{.form = form, .coefficients = {}, .intervals = {}};
  for (std::size_t i = 0; i < terms; ++i)
    law.coefficients.push_back(solution->coefficients[i] * scale_of(form, i, largest));
  if (x.size() > terms) {
    const boost::math::students_t distribution(static_cast<double>(x.size() - terms));
    const double t = boost::math::quantile(distribution, 0.975);
    for (std::size_t i = 0; i < terms; ++i) {
      const double half = t * solution->deviations[i] * scale_of(form, i, largest);
      law.intervals.push_back({law.coefficients[i] - half, law.coefficients[i] + half});
    }
  }
  if (form == LawForm::power) {
    law.coefficients[0] = std::exp(law.coefficients[0]);
    if (!law.intervals.empty())
      law.intervals[0] = {std::exp(law.intervals[0].low), std::exp(law.intervals[0].high)};
  }
  double squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) squares += std::pow(law.at(x[i]) / y[i] - 1, 2);
  law.error = std::sqrt(squares / static_cast<double>(x.size()));
  return law;
}

std::optional<Law> fit_growth(std::span<const double> x, std::span<const double> y) {
  const auto linear = fit(LawForm::linear, x, y), quadratic = fit(LawForm::quadratic, x, y);
  if (!quadratic) return linear;
  const double largest = *std::ranges::max_element(x), c2 = quadratic->coefficients[2];
  const bool is_clear =
      quadratic->intervals.empty() ? linear->error > 1e-3 : quadratic->intervals[2].low > 0;
  const bool matters = c2 * largest * largest > 0.01 * quadratic->at(largest);
  return is_clear && matters ? quadratic : linear;
}

std::string to_string(const Law& law, std::string_view x) {
  const std::vector<double>& c = law.coefficients;
  if (law.form == LawForm::power) return fmt::format("{:.4g} {}^{:.4g}", c[0], x, c[1]);
  std::string text = fmt::format("{:.4g}", c[0]);
  for (std::size_t i = 1; i < c.size(); ++i)
    text +=
        fmt::format(" {} {:.4g} {}{}", c[i] < 0 ? '-' : '+', std::abs(c[i]), x, i == 2 ? "^2" : "");
  return text;
}

}  // namespace ridge
