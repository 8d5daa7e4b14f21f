#include "ridge/study/study_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ridge/base/units.h"

namespace ridge {
namespace {

constexpr std::size_t rounds_for_interval = 6;
constexpr std::size_t outcome_width = 60;
constexpr double unsteady_spread = 0.15;

template <class T>
std::string known(const std::optional<T>& value, std::string_view format, double scale = 1) {
  return value ? fmt::format(fmt::runtime(format), scale * static_cast<double>(*value)) : "";
}

std::string spread_text(const std::optional<Interval>& spread) {
  constexpr double milli = 1e3;
  return spread ? fmt::format("{:.2f} to {:.2f}", milli * spread->low, milli * spread->high) : "";
}

// Names the variant whose rounds are furthest apart, relative to their median, and counts the
// others beyond unsteady_spread; empty if there is none.
std::string unsteady_text(const StudyResult& result) {
  const auto spread_of = [&](std::size_t v) {
    const MeasuredVariant& variant = result.variants[v];
    return variant.spread ? (variant.spread->high - variant.spread->low) / *variant.seconds : 0.0;
  };
  std::vector<std::size_t> unsteady;
  for (std::size_t v = 0; v < result.variants.size(); ++v)
    if (spread_of(v) > unsteady_spread) unsteady.push_back(v);
  if (unsteady.empty()) return "";
  const std::size_t worst = *std::ranges::max_element(unsteady, {}, spread_of);
  const std::size_t others = unsteady.size() - 1;
  return fmt::format(
      "The rounds of {} differ by {:.0f} %{}: something else may have used the machine.",
      name_of(result.definition.variants[worst]), 100 * spread_of(worst),
      others == 0 ? ""
                  : fmt::format(", those of {} other variant{} by more than {:.0f} %", others,
                                others == 1 ? "" : "s", 100 * unsteady_spread));
}

// Columns that say nothing are left out.
StudyTable without_empty_columns(StudyTable table) {
  for (std::size_t c = table.columns.size(); c-- > 0;) {
    if (std::ranges::any_of(table.rows, [&](const TextRow& row) { return !row[c].empty(); }))
      continue;
    table.columns.erase(table.columns.begin() + static_cast<std::ptrdiff_t>(c));
    for (TextRow& row : table.rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(c));
  }
  return table;
}

}  // namespace

std::string_view claim_of(const StudyVariant& variant) {
  return variant.size.empty() ? "" : study_size(variant.size).claimed_parameters;
}

StudyTable variants_table(const StudyResult& result) {
  const bool has_sizes = !result.definition.variants.front().size.empty();
  const bool has_interval =
      result.definition.rounds >= static_cast<std::int64_t>(rounds_for_interval);
  StudyTable table;
  const auto column = [&](std::string header, bool left = false, std::size_t width = 0) {
    table.columns.push_back({.header = std::move(header), .left = left, .max_width = width});
  };
  column("Variant", true);
  column("Parameters");
  if (has_sizes) column("Workshop says");
  column("FLOPs/step");
  column("ms/step");
  column(has_interval ? "95 % interval" : "Rounds from, to");
  column("Samples/s");
  column("Tokens/s");
  column("Peak MB");
  column("Planned MB");
  column("Average MB");
  column("GFLOP/s");
  column("MFU %");
  column("Kernels");
  column("Outcome", true, outcome_width);
  for (std::size_t v = 0; v < result.variants.size(); ++v) {
    const MeasuredVariant& measured = result.variants[v];
    const VariantPlan& plan = result.plans[v];
    TextRow row{name_of(result.definition.variants[v]),
                plan.parameters > 0 ? format_count(plan.parameters) : ""};
    if (has_sizes) row.emplace_back(claim_of(result.definition.variants[v]));
    row.push_back(plan.flops > 0 ? format_si(static_cast<double>(plan.flops)) : "");
    row.push_back(known(measured.seconds, "{:.2f}", 1e3));
    row.push_back(spread_text(measured.spread));
    row.push_back(known(measured.samples_per_second, "{:.1f}"));
    row.push_back(known(measured.tokens_per_second, "{:.0f}"));
    row.push_back(known(measured.peak_bytes, "{:.1f}", 1 / mega));
    row.push_back(plan.peak_bytes > 0
                      ? fmt::format("{:.1f}", static_cast<double>(plan.peak_bytes) / mega)
                      : "");
    row.push_back(plan.mean_bytes > 0 ? fmt::format("{:.1f}", plan.mean_bytes / mega) : "");
    row.push_back(known(measured.flops_per_second(), "{:.1f}", 1e-9));
    row.push_back(known(result.utilization(v), "{:.1f}", 100));
    row.push_back(known(measured.kernels, "{:.0f}"));
    row.push_back(measured.outcome);
    table.rows.push_back(std::move(row));
  }
  return without_empty_columns(std::move(table));
}

StudyTable plans_table(const StudyResult& result) {
  StudyTable table;
  table.columns.push_back({.header = "Variant", .left = true});
  for (const char* header :
       {"FLOPs/byte", "Attention, % of FLOPs", "Feed-forward, % of FLOPs", "Attention, % of peak",
        "passes the rest at", "Peak/parameters", "Compute, % of least time", "Time/least time",
        "GB/s", "Bandwidth, % of time"})
    table.columns.push_back({.header = header});
  for (std::size_t v = 0; v < result.plans.size(); ++v) {
    const VariantPlan& plan = result.plans[v];
    const auto share = [](auto part, auto whole, std::string_view format, double scale) {
      return part > 0 && whole > 0
                 ? fmt::format(fmt::runtime(format),
                               scale * static_cast<double>(part) / static_cast<double>(whole))
                 : std::string();
    };
    const double least = plan.computing_seconds + plan.moving_seconds;
    const double seconds = result.variants[v].seconds.value_or(0);
    table.rows.push_back(
        {name_of(result.definition.variants[v]), share(plan.flops, plan.bytes, "{:.1f}", 1),
         share(plan.attention_flops, plan.flops, "{:.0f}", 100),
         share(plan.feed_forward_flops, plan.flops, "{:.0f}", 100),
         share(plan.attention_peak_bytes, plan.peak_bytes, "{:.0f}", 100),
         plan.attention_passes_at ? std::to_string(*plan.attention_passes_at) : "",
         share(plan.peak_bytes, plan.parameter_bytes, "{:.1f}", 1),
         share(plan.computing_seconds, least, "{:.0f}", 100), share(seconds, least, "{:.1f}", 1),
         share(plan.bytes, seconds, "{:.1f}", 1e-9),
         share(plan.moving_seconds, seconds, "{:.1f}", 100)});
  }
  return without_empty_columns(std::move(table));
}

StudyTable factors_table(const StudyResult& result) {
  StudyTable table;
  table.columns = {{.header = "From", .left = true}, {.header = "To", .left = true}};
  for (const char* header : {"Parameters", "FLOPs", "Bytes moved", "Peak memory", "Average memory",
                             "Time of a step", "Samples/s"})
    table.columns.push_back({.header = header});
  const std::vector<StudyVariant>& variants = result.definition.variants;
  const auto factor = [](auto from, auto to) {
    return from > 0 && to > 0
               ? fmt::format("{:.2f}", static_cast<double>(to) / static_cast<double>(from))
               : std::string();
  };
  const auto add = [&](std::size_t a, std::size_t b) {
    const VariantPlan &from = result.plans[a], &to = result.plans[b];
    const MeasuredVariant &first = result.variants[a], &then = result.variants[b];
    table.rows.push_back(
        {name_of(variants[a]), name_of(variants[b]), factor(from.parameters, to.parameters),
         factor(from.flops, to.flops), factor(from.bytes, to.bytes),
         factor(from.peak_bytes, to.peak_bytes), factor(from.mean_bytes, to.mean_bytes),
         factor(first.seconds.value_or(0), then.seconds.value_or(0)),
         factor(first.samples_per_second.value_or(0), then.samples_per_second.value_or(0))});
  };
  for (const VariantSeries& series : series_of(variants))
    for (std::size_t i = 1; i < series.variants.size(); ++i)
      add(series.variants[i - 1], series.variants[i]);
  return without_empty_columns(std::move(table));
}

StudyTable scaling_table(const std::vector<ScalingPoint>& points) {
  StudyTable table;
  table.columns = {{.header = "Scaling", .left = true}};
  for (const char* header : {"Ranks", "Batch of each", "Whole batch", "One rank", "Ideal",
                             "Measured", "Efficiency (95 %)"})
    table.columns.push_back({.header = header});
  for (const ScalingPoint& p : points) {
    const auto rate = [](double per_second) { return fmt::format("{:.1f}", per_second); };
    table.rows.push_back({p.is_weak ? "weak" : "strong", std::to_string(p.ranks),
                          std::to_string(p.batch_of_rank), std::to_string(p.batch),
                          rate(p.samples_per_second_alone),
                          rate(p.samples_per_second_alone * static_cast<double>(p.ranks)),
                          rate(p.samples_per_second), efficiency_text(p.efficiency)});
  }
  return table;
}

StudyTable laws_table(const std::vector<StudyLaw>& laws) {
  StudyTable table;
  for (const char* header : {"Quantity", "By x =", "Where", "x from, to", "Growth", "Power"})
    table.columns.push_back({.header = header, .left = true});
  table.columns.push_back({.header = "Error"});
  for (const StudyLaw& law : laws) {
    table.rows.push_back(
        {fmt::format("{}, {}", name_of(law.quantity), unit_of(law.quantity)), law.axis, law.where,
         fmt::format("{:.6g} to {:.6g}", law.points.front().x, law.points.back().x),
         growth_text(law), power_text(law), known(law.error(), "{:.1f} %", 100)});
  }
  return without_empty_columns(std::move(table));
}

std::vector<std::string> notes_of(const StudyResult& result) {
  std::vector<std::string> notes;
  if (!result.is_complete())
    notes.push_back(
        fmt::format("{} of {} measurements are still to be taken: ridge study --resume {}",
                    result.left, result.measured + result.left, result.name));
  if (result.definition.rounds < static_cast<std::int64_t>(rounds_for_interval))
    notes.push_back(
        result.definition.rounds == 1
            ? fmt::format("Each variant was measured once. An interval takes {} rounds.",
                          rounds_for_interval)
            : fmt::format("ms/step is the median over the rounds. An interval of a median takes {} "
                          "rounds: with {} the table has the fastest and the slowest.",
                          rounds_for_interval, result.definition.rounds));
  if (!result.definition.variants.front().size.empty())
    notes.emplace_back(
        "Parameters are counted on the model that ran. The workshop's figure is its claim.");
  if (std::string unsteady = unsteady_text(result); !unsteady.empty())
    notes.push_back(std::move(unsteady));
  if (result.machines > 1)
    notes.push_back(fmt::format(
        "The runs are of {} machines or settings of one: times compare badly", result.machines));
  if (result.programs > 1)
    notes.push_back(fmt::format("The runs are of {} builds of the program", result.programs));
  return notes;
}

}  // namespace ridge
