#include "ridge/study/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "ridge/analyze/plan.h"
#include "ridge/base/units.h"
#include "ridge/session/options.h"
#include "ridge/study/configuration.h"
#include "ridge/study/false_discovery.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;
using Kind = GateMetric::Kind;

constexpr GateMetric metrics[] = {
    {"time", "s", Kind::timed, true, {.value = 0.02}},
    {"forward", "s", Kind::timed, false, {.value = 0.05}},
    {"backward", "s", Kind::timed, false, {.value = 0.05}},
    {"optimizer", "s", Kind::timed, false, {.value = 0.05}},
    {"memory", "bytes", Kind::counted, true, {.value = 0, .relative = false}},
    {"kernels", "", Kind::counted, true, {.value = 0, .relative = false}},
    {"flops", "", Kind::counted, true, {.value = 0, .relative = false}},
    {"loss", "", Kind::loss, true, {.value = 1e-4}},
};
// Sums in another order change a loss by some units in the last place of what computes it.
constexpr double loss_effect_of_16_bits = 1e-2;

const GateMetric& metric_named(std::string_view name) {
  const auto found = std::ranges::find(metrics, name, &GateMetric::name);
  if (found != std::end(metrics)) return *found;
  std::vector<std::string> names;
  for (const GateMetric& metric : metrics) names.emplace_back(metric.name);
  const std::string near = nearest_name(std::string(name), names);
  throw UsageError("there is no metric '{}'{}", name,
                   near.empty() ? fmt::format("; there are: {}", fmt::join(names, ", "))
                                : "; did you mean " + near + "?");
}

// "1%", "0.01", "4096", "1MB"
LeastEffect effect_from(std::string_view text, const GateMetric& metric) {
  const bool percent = text.ends_with('%');
  const std::string_view digits = percent ? text.substr(0, text.size() - 1) : text;
  double value = 0;
  const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool is_number = fault == std::errc() && end == digits.data() + digits.size() &&
                         std::isfinite(value) && value >= 0;
  if (is_number && percent) return {.value = value / 100};
  if (is_number && metric.kind != Kind::counted) return {.value = value};
  if (is_number) return {.value = value, .relative = false};
  if (metric.unit == "bytes" && !percent)
    return {.value = static_cast<double>(parse_bytes(text)), .relative = false};
  throw UsageError("the least effect on {} is '{}'; it must be a number of at least 0, or percent",
                   metric.name, text);
}

std::optional<double> count_in(const GatedRun& run, const GateMetric& metric) {
  const auto real = [](const std::optional<std::int64_t>& value) {
    return value ? std::optional(static_cast<double>(*value)) : std::nullopt;
  };
  if (metric.name == "memory") return real(run.row.peak_bytes);
  if (metric.name == "kernels") return real(run.row.kernels);
  return real(run.row.flops);
}

std::vector<double> counts_in(std::span<const GatedRun> runs, const GateMetric& metric) {
  std::vector<double> values;
  for (const GatedRun& run : runs)
    if (const auto value = count_in(run, metric)) values.push_back(*value);
  return values;
}

struct LossDifference {
  double largest = 0;     // relative
  std::size_t steps = 0;  // that were compared
  std::size_t place = 0;  // the number of the step with the largest, from 1
  bool bit_equal = true;
};

LossDifference difference_of(std::span<const double> a, std::span<const double> b) {
  LossDifference result{.steps = std::min({a.size(), b.size(), losses_compared})};
  for (std::size_t i = 0; i < result.steps; ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    result.bit_equal = false;
    double relative = std::abs(b[i] - a[i]) / std::max(std::abs(a[i]), 1e-30);
    if (std::isnan(relative)) relative = std::numeric_limits<double>::infinity();
    if (relative <= result.largest) continue;
    result.largest = relative;
    result.place = i + 1;
  }
  return result;
}

MetricResult compare_losses(const GateCriterion& criterion, std::span<const GatedRun> baseline,
                            std::span<const GatedRun> candidate) {
  MetricResult result = result_of(criterion);
  std::optional<LossDifference> least;
  for (const GatedRun& a : baseline)
    for (const GatedRun& b : candidate)
      if (const LossDifference found = difference_of(a.losses, b.losses);
          found.steps > 0 && (!least || found.largest < least->largest)) {
        least = found;
        result.baseline = a.losses[found.steps - 1];
        result.candidate = b.losses[found.steps - 1];
      }
  if (!least) {
    result.note = "no losses are known of both";
    return result;
  }
  double limit = criterion.least_effect.value;
  const std::string& dtype = candidate.front().row.dtype;
  if (criterion.is_default && !dtype.empty() && dtype != "fp32" && dtype != "tf32")
    limit = loss_effect_of_16_bits;
  result.effect.value = limit;
  result.least_effect = to_string(result.effect, *criterion.metric);
  result.change = least->largest;
  result.verdict = least->largest > limit ? GateVerdict::regression : GateVerdict::fine;
  result.note = least->bit_equal ? fmt::format("bit equal in {} steps", least->steps)
                                 : fmt::format("differ by {:.2g} at most, in step {} of {}",
                                               least->largest, least->place, least->steps);
  return result;
}

}  // namespace

std::span<const GateMetric> gate_metrics() { return metrics; }

std::vector<GateCriterion> criteria_of(std::span<const std::string> names,
                                       std::span<const std::string> least_effects) {
  std::vector<GateCriterion> criteria;
  const auto add = [&](const GateMetric& metric) {
    if (std::ranges::find(criteria, &metric, &GateCriterion::metric) == criteria.end())
      criteria.push_back({&metric, metric.least_effect});
  };
  for (const std::string& name : names) add(metric_named(name));
  for (const GateMetric& metric : metrics)
    if (names.empty() && metric.is_default) add(metric);
  for (const std::string& text : least_effects) {
    const std::size_t sign = text.find('=');
    if (sign == std::string::npos)
      throw UsageError("--least-effect is '{}'; it must be METRIC=VALUE, such as time=1%", text);
    const GateMetric& metric = metric_named(text.substr(0, sign));
    const auto criterion = std::ranges::find(criteria, &metric, &GateCriterion::metric);
    if (criterion == criteria.end())
      throw UsageError("--least-effect is on {}, which is not compared: name it in --metrics too",
                       metric.name);
    criterion->least_effect = effect_from(std::string_view(text).substr(sign + 1), metric);
    criterion->is_default = false;
    if (criterion->is_timed() && !(criterion->least_effect.value > 0))
      throw UsageError(
          "the least effect on {} is 0; what is timed is never equal: name a part, "
          "such as 1%",
          metric.name);
  }
  return criteria;
}

std::string to_string(const LeastEffect& effect, const GateMetric& metric) {
  if (metric.kind == Kind::loss) return fmt::format("{:g}", effect.value);
  if (effect.relative) return fmt::format("{:g} %", 100 * effect.value);
  const std::string count = format_count(std::llround(effect.value));
  return metric.unit.empty() ? count : fmt::format("{} {}", count, metric.unit);
}

MetricResult result_of(const GateCriterion& criterion) {
  return {.metric = std::string(criterion.metric->name),
          .unit = std::string(criterion.metric->unit),
          .least_effect = to_string(criterion.least_effect, *criterion.metric),
          .effect = criterion.least_effect};
}

GateResult::Outcome GateResult::outcome() const {
  Outcome outcome = Outcome::fine;
  bool regression = false;
  for (const CommandResult& command : commands) {
    if (!command.fault.empty()) return Outcome::failed;
    for (const MetricResult& metric : command.metrics) {
      regression |= metric.verdict == GateVerdict::regression;
      if (metric.verdict == GateVerdict::undecided) outcome = Outcome::undecided;
    }
  }
  return regression ? Outcome::regression : outcome;
}

std::string_view name_of(GateResult::Outcome outcome) {
  constexpr std::string_view names[] = {"fine", "regression", "undecided", "failed"};
  return names[static_cast<int>(outcome)];
}

void control_false_discoveries(GateResult& result) {
  std::vector<MetricResult*> timed;
  std::vector<double> p_values;
  for (CommandResult& command : result.commands)
    for (MetricResult& metric : command.metrics)
      if (metric.p_value) {
        timed.push_back(&metric);
        p_values.push_back(*metric.p_value);
      }
  const std::vector<bool> found = discoveries(p_values, result.false_alarms);
  for (std::size_t i = 0; i < timed.size(); ++i)
    if (found[i] && timed[i]->verdict == GateVerdict::undecided && timed[i]->change &&
        *timed[i]->change >= timed[i]->effect.value)
      timed[i]->verdict = GateVerdict::regression;
}

GatedRun gated_run(const RunDocument& document) {
  const DocumentRow row = row_of(document);
  GatedRun run{.row = row.row, .losses = {}, .options = configuration_of(row.options)};
  const Json record = Json::parse(row.record);
  const Json summary = record.value("performance_summary", Json::object());
  if (!summary.is_object()) return run;
  for (const Json& loss : summary.value("losses", Json::array()))
    run.losses.push_back(loss.is_number() ? loss.get<double>()
                                          : std::numeric_limits<double>::quiet_NaN());
  return run;
}

MetricResult compare_counted(const GateCriterion& criterion, std::span<const GatedRun> baseline,
                             std::span<const GatedRun> candidate) {
  if (criterion.metric->kind == Kind::loss) return compare_losses(criterion, baseline, candidate);
  MetricResult result = result_of(criterion);
  const std::vector<double> before = counts_in(baseline, *criterion.metric),
                            after = counts_in(candidate, *criterion.metric);
  if (before.empty() || after.empty()) {
    result.note = fmt::format("the {} does not tell", before.empty() ? "baseline" : "candidate");
    return result;
  }
  result.baseline = std::ranges::max(before);
  result.candidate = std::ranges::min(after);
  const double difference = *result.candidate - *result.baseline;
  if (*result.baseline > 0) result.change = difference / *result.baseline;
  const double limit = criterion.least_effect.relative
                           ? criterion.least_effect.value * *result.baseline
                           : criterion.least_effect.value;
  result.verdict = difference > limit ? GateVerdict::regression : GateVerdict::fine;
  if (difference == 0 && std::ranges::min(before) == std::ranges::max(after)) result.note = "equal";
  if (std::ranges::min(before) != std::ranges::max(before) ||
      std::ranges::min(after) != std::ranges::max(after))
    result.note = "differs from run to run";
  return result;
}

}  // namespace ridge
