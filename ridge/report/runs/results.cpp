// The tables and pictures of a report of runs.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ridge/base/units.h"
#include "ridge/report/runs/pictures.h"
#include "ridge/report/runs/sections.h"
#include "ridge/report/study_svg.h"
#include "ridge/study/study_tables.h"

namespace ridge {
namespace {

constexpr std::size_t most_bars = 40;   // of a picture: the first variants
constexpr std::size_t most_curves = 6;  // likewise
constexpr double milli = 1e3;

ReportTable table_of(std::string caption, StudyTable table) {
  return {.caption = std::move(caption),
          .columns = std::move(table.columns),
          .rows = std::move(table.rows)};
}

// Of measured variants, in their order.
std::vector<Bar> bars_of(const ReportFacts& facts, bool of_memory) {
  std::vector<Bar> bars;
  for (const std::size_t v : facts.measured()) {
    const MeasuredVariant& variant = facts.result.variants[v];
    if (bars.size() == most_bars) break;
    if (!of_memory)
      bars.push_back({.label = facts.name_of_variant(v),
                      .value_text = milliseconds_text(*variant.seconds),
                      .value = milli * *variant.seconds,
                      .spread = variant.spread
                                    ? std::optional(Interval{milli * variant.spread->low,
                                                             milli * variant.spread->high})
                                    : std::nullopt});
    else if (variant.peak_bytes && *variant.peak_bytes > 0)
      bars.push_back({.label = facts.name_of_variant(v),
                      .value_text = megabytes_text(*variant.peak_bytes),
                      .value = static_cast<double>(*variant.peak_bytes) / mega,
                      .spread = std::nullopt});
  }
  return bars;
}

void add_bars(const ReportFacts& facts, ReportSection& section) {
  const std::vector<Bar> times = bars_of(facts, false), peaks = bars_of(facts, true);
  if (times.size() < 2) return;
  const std::string first = facts.measured().size() > most_bars
                                ? fmt::format(" These are the first {} variants.", most_bars)
                                : "";
  section.blocks.emplace_back(ReportPicture{
      .name = "step-time",
      .caption =
          "The time of a step by variant: the median over the rounds, and its interval or, of "
          "fewer than six rounds, the least and the largest." +
          first,
      .svg = bars_svg("Time of a step, ms", times)});
  if (peaks.size() > 1)
    section.blocks.emplace_back(
        ReportPicture{.name = "peak-memory",
                      .caption = "The most memory that tensors took at once, by variant." + first,
                      .svg = bars_svg("Peak memory, MB", peaks)});
}

void add_losses(const ReportFacts& facts, ReportSection& section) {
  std::vector<Curve> curves;
  ReportTable table{.caption = "Losses in nats, of the newest run of each variant",
                    .columns = {{.header = "Variant", .left = true},
                                {.header = "First step"},
                                {.header = "Last step"},
                                {.header = "First loss"},
                                {.header = "Last loss"}},
                    .rows = {}};
  for (const std::size_t v : facts.measured()) {
    const NewestRun& newest = *facts.newest[v];
    const bool trains = facts.result.variants[v].runs.back().mode == "training";
    if (!trains || newest.losses.empty()) continue;
    const double last = newest.first_step + static_cast<double>(newest.losses.size()) - 1;
    table.rows.push_back({facts.name_of_variant(v), fmt::format("{:.0f}", newest.first_step),
                          fmt::format("{:.0f}", last), format_loss(newest.losses.front()),
                          format_loss(newest.losses.back())});
    if (newest.losses.size() > 1 && curves.size() < most_curves)
      curves.push_back({facts.name_of_variant(v), newest.first_step, newest.losses});
  }
  if (table.rows.empty()) return;
  const std::size_t all = table.rows.size();
  section.blocks.emplace_back(ReportHeading{"Losses"});
  section.blocks.emplace_back(std::move(table));
  if (!curves.empty())
    section.blocks.emplace_back(ReportPicture{
        .name = "losses",
        .caption = fmt::format("The loss of the newest run of {}, by step.",
                               all > most_curves
                                   ? fmt::format("each of the first {} variants", most_curves)
                                   : "each variant"),
        .svg = curves_svg("Loss, nats", "step", curves)});
}

void add_comparisons(const ReportFacts& facts, ReportSection& section) {
  if (facts.comparisons.empty()) return;
  ReportTable table{
      .caption = "Variants whose steps do the same work: how many times the other's a step takes",
      .columns = {{.header = "Variant", .left = true},
                  {.header = "Against", .left = true},
                  {.header = "Time"},
                  {.header = "95 % interval"},
                  {.header = "Clear", .left = true},
                  {.header = "Peak memory"},
                  {.header = "By", .left = true}},
      .rows = {}};
  for (const StudyComparison& comparison : facts.comparisons) {
    const auto& interval = comparison.time.interval;
    table.rows.push_back(
        {facts.name_of_variant(comparison.after), facts.name_of_variant(comparison.before),
         fmt::format("{:.3f}", comparison.time.value),
         interval ? fmt::format("{:.3f} to {:.3f}", interval->low, interval->high) : "none",
         !comparison.is_clear()      ? "no"
         : comparison.time.value < 1 ? "faster"
                                     : "slower",
         comparison.memory ? fmt::format("{:.3f}", *comparison.memory) : "",
         basis_text(comparison)});
  }
  section.blocks.emplace_back(ReportHeading{"Comparisons"});
  section.blocks.emplace_back(std::move(table));
}

void add_laws(const ReportFacts& facts, ReportSection& section) {
  if (facts.laws.empty()) return;
  section.blocks.emplace_back(ReportHeading{"Laws"});
  section.blocks.emplace_back(
      table_of(fmt::format("How a quantity follows from what was varied{}", laws_note),
               laws_table(facts.laws)));
  for (StudyPicture& picture : study_pictures(facts.result)) {
    const std::string name = picture.file.substr(0, picture.file.rfind('.'));
    section.blocks.emplace_back(
        ReportPicture{.name = name,
                      .caption = picture.title + ": what was measured, with its spread over the "
                                                 "rounds, and the law through it.",
                      .svg = std::move(picture.svg)});
  }
}

}  // namespace

std::string milliseconds_text(double seconds) {
  return fmt::format("{} ms", short_number(milli * seconds));
}

std::string rate_text(double samples_per_second) {
  return fmt::format("{} samples/s", short_number(samples_per_second));
}

std::string megabytes_text(std::int64_t bytes) {
  return fmt::format("{} MB", short_number(static_cast<double>(bytes) / mega));
}

std::string ratio_text(const Ratio& ratio) {
  if (!ratio.interval) return fmt::format("{:.3g} (no interval)", ratio.value);
  return fmt::format("{:.3g} (95 % interval {:.3g} to {:.3g})", ratio.value, ratio.interval->low,
                     ratio.interval->high);
}

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size >= 1e3) return format_count(std::llround(value));
  const int digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  std::string text = size > 0 && size < 1e-2 ? fmt::format("{:.3g}", value)
                                             : fmt::format("{:.{}f}", value, digits);
  return text;
}

ReportSection results_section(const ReportFacts& facts) {
  ReportSection section{.heading = "Results", .blocks = {}};
  section.blocks.emplace_back(table_of("", variants_table(facts.result)));
  for (const std::string& note : notes_of(facts.result))
    section.blocks.emplace_back(ReportText{note.ends_with('.') ? note : note + "."});
  add_bars(facts, section);
  add_comparisons(facts, section);
  add_laws(facts, section);
  add_losses(facts, section);
  if (!facts.result.gathered) {
    section.blocks.emplace_back(ReportHeading{"By the graph of a step"});
    section.blocks.emplace_back(
        table_of("What is computed of a variant before it runs", plans_table(facts.result)));
  }
  return section;
}

}  // namespace ridge
