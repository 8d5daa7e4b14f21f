#include "ridge/study/study_laws.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "ridge/base/units.h"

namespace ridge {
namespace {

// What is varied, if it is a number for every variant.
std::optional<double> number_of(const std::string& text) {
  double value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size() || value <= 0) return std::nullopt;
  return value;
}

struct LawGroup {
  std::string axis, where;
  std::vector<std::pair<double, std::size_t>> members;  // x and variant
};

// Groups by all settings but one. With sizes, which vary many options at once, there is a group
// over them too, against the parameters.
std::vector<LawGroup> groups_of(const StudyResult& result) {
  const std::vector<StudyVariant>& variants = result.definition.variants;
  std::vector<LawGroup> groups;
  const auto add = [&](std::string_view axis, const std::string& where, double x, std::size_t v) {
    const auto found = std::ranges::find_if(
        groups, [&](const LawGroup& g) { return g.axis == axis && g.where == where; });
    LawGroup& group = found != groups.end()
                          ? *found
                          : groups.emplace_back(LawGroup{std::string(axis), where, {}});
    group.members.emplace_back(x, v);
  };
  for (const auto& [axis, first] : variants.front().settings)
    for (std::size_t v = 0; v < variants.size(); ++v) {
      const auto& settings = variants[v].settings;
      const auto setting = std::ranges::find(settings, axis, [](const auto& s) { return s.first; });
      if (const auto x = number_of(setting->second))
        add(axis, name_without(variants[v], axis), *x, v);
    }
  if (!variants.front().size.empty())
    for (std::size_t v = 0; v < variants.size(); ++v)
      add("parameters", name_without(variants[v], ""),
          static_cast<double>(result.plans[v].parameters), v);
  return groups;
}

std::optional<double> value_of(StudyQuantity quantity, const RunRow& run) {
  constexpr double milli = 1e3;
  switch (quantity) {
    case StudyQuantity::step_time:
      return milli * *run.median_seconds;
    case StudyQuantity::throughput:
      return run.samples_per_second;
    case StudyQuantity::peak_memory:
      break;
  }
  if (!run.peak_bytes) return std::nullopt;
  return static_cast<double>(*run.peak_bytes) / mega;
}

std::optional<StudyLaw> law_of(const StudyResult& result, const LawGroup& group,
                               StudyQuantity quantity) {
  StudyLaw law{.quantity = quantity, .axis = group.axis, .where = group.where};
  std::vector<double> x, y;
  for (const auto& [at, v] : group.members) {
    std::vector<double> values;
    for (const RunRow& run : result.variants[v].runs)
      if (const auto value = value_of(quantity, run); value && *value > 0) values.push_back(*value);
    // All rounds have the same peak: as points of their own they would feign certainty.
    if (quantity == StudyQuantity::peak_memory && !values.empty()) values.resize(1);
    if (values.empty()) continue;
    law.points.push_back(
        {.variant = v, .x = at, .y = statistics_of(values).median, .spread = spread_of(values)});
    x.insert(x.end(), values.size(), at);
    y.insert(y.end(), values.begin(), values.end());
  }
  std::ranges::sort(law.points, {}, &StudyPoint::x);
  if (law.points.size() < 2 || law.points.front().x == law.points.back().x) return std::nullopt;
  if (group.axis != "parameters" && quantity != StudyQuantity::throughput)
    law.growth = fit_growth(x, y);
  law.power = fit(LawForm::power, x, y);
  return law;
}

}  // namespace

std::string_view name_of(StudyQuantity quantity) {
  constexpr std::string_view names[] = {"Time of a step", "Peak memory", "Throughput"};
  return names[static_cast<int>(quantity)];
}

std::string_view unit_of(StudyQuantity quantity) {
  constexpr std::string_view units[] = {"ms", "MB", "samples/s"};
  return units[static_cast<int>(quantity)];
}

std::optional<double> StudyLaw::at(double x) const {
  if (saturation) return saturation->most * x / (x + saturation->half);
  if (growth) return growth->at(x);
  if (power) return power->at(x);
  return std::nullopt;
}

std::optional<double> StudyLaw::error() const {
  double squares = 0;
  for (const StudyPoint& point : points) {
    const std::optional<double> expected = at(point.x);
    if (!expected) return std::nullopt;
    squares += std::pow(*expected / point.y - 1, 2);
  }
  return std::sqrt(squares / static_cast<double>(points.size()));
}

std::string StudyLaw::text() const {
  if (saturation) return fmt::format("{:.4g} x / (x + {:.4g})", saturation->most, saturation->half);
  return growth ? to_string(*growth) : power ? to_string(*power) : "";
}

namespace {

// The batch over the time of its step, where that is linear and both its parts are positive.
std::optional<Saturation> saturation_of(const StudyLaw& step_time, const StudyResult& result) {
  if (step_time.axis != "batch-size" || !step_time.growth ||
      step_time.growth->form != LawForm::linear)
    return std::nullopt;
  const double fixed = step_time.growth->coefficients[0], each = step_time.growth->coefficients[1];
  if (fixed <= 0 || each <= 0) return std::nullopt;
  const StudyPoint& point = step_time.points.front();
  // More than one where gradients are accumulated.
  const double per_x = static_cast<double>(result.plans[point.variant].samples_per_step) / point.x;
  const std::vector<Interval>& intervals = step_time.growth->intervals;
  return Saturation{.most = 1e3 * per_x / each,
                    .half = fixed / each,
                    .is_clear = intervals.empty() || intervals[0].low > 0};
}

}  // namespace

std::vector<StudyLaw> laws_of(const StudyResult& result) {
  std::vector<StudyLaw> laws;
  for (const LawGroup& group : groups_of(result)) {
    std::optional<Saturation> saturation;
    for (const StudyQuantity quantity :
         {StudyQuantity::step_time, StudyQuantity::throughput, StudyQuantity::peak_memory}) {
      auto law = law_of(result, group, quantity);
      if (!law) continue;
      if (quantity == StudyQuantity::step_time) saturation = saturation_of(*law, result);
      if (quantity == StudyQuantity::throughput) law->saturation = saturation;
      laws.push_back(*std::move(law));
    }
  }
  return laws;
}

std::optional<double> saturating_batch(const StudyLaw& law) {
  if (!law.saturation || !law.saturation->is_clear) return std::nullopt;
  return 9 * law.saturation->half;  // batch / (batch + half) = 0.9
}

std::string growth_text(const StudyLaw& law) {
  if (law.saturation) return law.text();
  if (!law.growth) return "";
  std::string text = to_string(*law.growth);
  for (std::size_t i = 0; i < law.growth->intervals.size(); ++i)
    text += fmt::format("{}{:.4g} to {:.4g}", i == 0 ? " (" : ", ", law.growth->intervals[i].low,
                        law.growth->intervals[i].high);
  return law.growth->intervals.empty() ? text : text + ")";
}

std::string power_text(const StudyLaw& law) {
  if (!law.power) return "";
  std::string text = fmt::format("x^{:.2f}", law.power->coefficients[1]);
  if (!law.power->intervals.empty())
    text += fmt::format(" ({:.2f} to {:.2f})", law.power->intervals[1].low,
                        law.power->intervals[1].high);
  return text;
}

}  // namespace ridge
