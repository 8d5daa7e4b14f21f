#include "ridge/study/law.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace ridge {
namespace {

const std::vector<double> sizes{4, 8, 16, 32, 64, 128};

template <class Function>
std::vector<double> values_of(const Function& f, double noise = 0, std::uint32_t seed = 0) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> y;
  for (const double x : sizes) y.push_back(f(x) * (1 + noise * normal(random)));
  return y;
}

TEST(Law, IsFoundExactlyWithoutNoise) {
  const auto linear = fit(LawForm::linear, sizes, values_of([](double x) { return 3 + 2 * x; }));
  ASSERT_TRUE(linear);
  EXPECT_NEAR(linear->coefficients[0], 3, 1e-9);
  EXPECT_NEAR(linear->coefficients[1], 2, 1e-9);
  EXPECT_LT(linear->error, 1e-10);
  EXPECT_NEAR(linear->at(1000), 2003, 1e-6);
  const auto quadratic = fit(LawForm::quadratic, sizes,
                             values_of([](double x) { return 50.5 + 0.38 * x + 0.0015 * x * x; }));
  ASSERT_TRUE(quadratic);
  EXPECT_NEAR(quadratic->coefficients[2], 0.0015, 1e-9);
  EXPECT_NEAR(quadratic->at(1000), 50.5 + 380 + 1500, 1e-4);
  const auto power =
      fit(LawForm::power, sizes, values_of([](double x) { return 2.5 * std::pow(x, 0.9); }));
  ASSERT_TRUE(power);
  EXPECT_NEAR(power->coefficients[0], 2.5, 1e-9);
  EXPECT_NEAR(power->coefficients[1], 0.9, 1e-9);
  EXPECT_EQ(to_string(*power, "batch"), "2.5 batch^0.9");
  EXPECT_EQ(to_string(*linear), "3 + 2 x");
}

TEST(Law, HasIntervalsThatHoldNineteenTimesOfTwenty) {
  int slope_inside = 0, exponent_inside = 0;
  constexpr int runs = 400;
  for (std::uint32_t seed = 0; seed < runs; ++seed) {
    const auto linear =
        fit(LawForm::linear, sizes, values_of([](double x) { return 3 + 2 * x; }, 0.03, seed));
    const Interval slope = linear->intervals[1];
    slope_inside += slope.low <= 2 && 2 <= slope.high ? 1 : 0;
    const auto power = fit(LawForm::power, sizes,
                           values_of([](double x) { return std::pow(x, 1.5); }, 0.03, seed));
    const Interval exponent = power->intervals[1];
    exponent_inside += exponent.low <= 1.5 && 1.5 <= exponent.high ? 1 : 0;
  }
  EXPECT_NEAR(slope_inside, 0.95 * runs, 0.035 * runs);
  EXPECT_NEAR(exponent_inside, 0.95 * runs, 0.035 * runs);
}

TEST(Law, IsQuadraticOnlyWhereThatIsClear) {
  const auto form = [](const auto& f, double noise, std::uint32_t seed = 0) {
    return fit_growth(sizes, values_of(f, noise, seed))->form;
  };
  const auto line = [](double x) { return 3 + 2 * x; };
  const auto bent = [](double x) { return 3 + 2 * x + 0.02 * x * x; };
  EXPECT_EQ(form(line, 0), LawForm::linear);
  EXPECT_EQ(form(bent, 0), LawForm::quadratic);
  EXPECT_EQ(form(bent, 0.01), LawForm::quadratic);
  int bends = 0;
  for (std::uint32_t seed = 0; seed < 200; ++seed)
    bends += form(line, 0.02, seed) == LawForm::quadratic ? 1 : 0;
  EXPECT_LE(bends, 12);
}

TEST(Law, NeedsAsManyPointsAsCoefficients) {
  const std::vector<double> x{1, 1, 2}, y{3, 3, 5};
  EXPECT_TRUE(fit(LawForm::linear, x, y));
  EXPECT_FALSE(fit(LawForm::quadratic, x, y));
  EXPECT_EQ(fit_growth(x, y)->form, LawForm::linear);
  EXPECT_FALSE(fit_growth(std::vector<double>{2, 2}, std::vector<double>{3, 3}));
}

}  // namespace
}  // namespace ridge
