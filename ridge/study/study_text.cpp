#include "ridge/study/study_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/session/json.h"
#include "ridge/study/study_laws.h"
#include "ridge/study/utc.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr double mega = 1e6;
constexpr std::size_t rounds_for_interval = 6;
constexpr std::size_t outcome_width = 60;
constexpr double unsteady_spread = 0.15;
constexpr std::string_view laws_note =
    ", with the intervals of their coefficients (95 %) where there are points enough";

constexpr std::string_view factors_note =
    "Growth from one variant to the next: how many times as much of each";

struct Table {
  std::vector<TextColumn> columns;
  std::vector<TextRow> rows;
};

template <class T>
std::string known(const std::optional<T>& value, std::string_view format, double scale = 1) {
  return value ? fmt::format(fmt::runtime(format), scale * static_cast<double>(*value)) : "";
}

std::string_view claim_of(const StudyVariant& variant) {
  return variant.size.empty() ? "" : study_size(variant.size).claimed_parameters;
}

std::string spread_text(const std::optional<Interval>& spread) {
  constexpr double milli = 1e3;
  return spread ? fmt::format("{:.2f} to {:.2f}", milli * spread->low, milli * spread->high) : "";
}

Table variants_table(const StudyResult& result) {
  const bool has_sizes = !result.definition.variants.front().size.empty();
  const bool has_interval =
      result.definition.rounds >= static_cast<std::int64_t>(rounds_for_interval);
  Table table;
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
    const VariantResult& measured = result.variants[v];
    const VariantPlan& plan = result.plans[v];
    TextRow row{name_of(result.definition.variants[v]), format_count(plan.parameters)};
    if (has_sizes) row.emplace_back(claim_of(result.definition.variants[v]));
    row.push_back(format_si(static_cast<double>(plan.flops)));
    row.push_back(known(measured.seconds, "{:.2f}", 1e3));
    row.push_back(spread_text(measured.spread));
    row.push_back(known(measured.samples_per_second, "{:.1f}"));
    row.push_back(known(measured.tokens_per_second, "{:.0f}"));
    row.push_back(known(measured.peak_bytes, "{:.1f}", 1 / mega));
    row.push_back(fmt::format("{:.1f}", static_cast<double>(plan.peak_bytes) / mega));
    row.push_back(plan.mean_bytes > 0 ? fmt::format("{:.1f}", plan.mean_bytes / mega) : "");
    row.push_back(known(measured.flops_per_second(), "{:.1f}", 1e-9));
    row.push_back(known(result.utilization(v), "{:.1f}", 100));
    row.push_back(known(measured.kernels, "{:.0f}"));
    row.push_back(measured.outcome);
    table.rows.push_back(std::move(row));
  }
  return table;
}

// What is known of each variant without running it.
Table plans_table(const StudyResult& result) {
  Table table;
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
    table.rows.push_back(
        {name_of(result.definition.variants[v]), share(plan.flops, plan.bytes, "{:.1f}", 1),
         share(plan.attention_flops, plan.flops, "{:.0f}", 100),
         share(plan.feed_forward_flops, plan.flops, "{:.0f}", 100),
         share(plan.attention_peak_bytes, plan.peak_bytes, "{:.0f}", 100),
         plan.attention_passes_at ? std::to_string(*plan.attention_passes_at) : "",
         share(plan.peak_bytes, plan.parameter_bytes, "{:.1f}", 1),
         share(plan.computing_seconds, least, "{:.0f}", 100),
         share(result.variants[v].seconds.value_or(0), least, "{:.1f}", 1),
         share(plan.bytes, result.variants[v].seconds.value_or(0), "{:.1f}", 1e-9),
         share(plan.moving_seconds, result.variants[v].seconds.value_or(0), "{:.1f}", 100)});
  }
  return table;
}

// Whether two variants differ in their size or in one setting alone.
bool is_one_step(const StudyVariant& from, const StudyVariant& to) {
  std::ptrdiff_t differences = from.size != to.size;
  for (std::size_t i = 0; i < from.settings.size(); ++i)
    differences += from.settings[i] != to.settings[i];
  return differences == 1;
}

// How many times as much of everything the next variant along each axis has.
Table factors_table(const StudyResult& result) {
  Table table;
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
  for (std::size_t a = 0; a + 1 < variants.size(); ++a) {
    std::size_t b = a + 1;
    while (b < variants.size() && !is_one_step(variants[a], variants[b])) ++b;
    if (b == variants.size()) continue;
    const VariantPlan &from = result.plans[a], &to = result.plans[b];
    const VariantResult &first = result.variants[a], &then = result.variants[b];
    table.rows.push_back(
        {name_of(variants[a]), name_of(variants[b]), factor(from.parameters, to.parameters),
         factor(from.flops, to.flops), factor(from.bytes, to.bytes),
         factor(from.peak_bytes, to.peak_bytes), factor(from.mean_bytes, to.mean_bytes),
         factor(first.seconds.value_or(0), then.seconds.value_or(0)),
         factor(first.samples_per_second.value_or(0), then.samples_per_second.value_or(0))});
  }
  return table;
}

Table laws_table(const std::vector<StudyLaw>& laws) {
  Table table;
  for (const char* header : {"Quantity", "By x =", "Where", "x from, to", "Growth", "Power"})
    table.columns.push_back({.header = header, .left = true});
  table.columns.push_back({.header = "Error"});
  for (const StudyLaw& law : laws) {
    table.rows.push_back(
        {fmt::format("{}, {}", name_of(law.quantity), unit_of(law.quantity)), law.axis, law.where,
         fmt::format("{:.6g} to {:.6g}", law.points.front().x, law.points.back().x),
         growth_text(law), power_text(law), known(law.error(), "{:.1f} %", 100)});
  }
  return table;
}

// Columns that say nothing are left out.
std::string text_of_table(Table table) {
  for (std::size_t c = table.columns.size(); c-- > 0;) {
    if (std::ranges::any_of(table.rows, [&](const TextRow& row) { return !row[c].empty(); }))
      continue;
    table.columns.erase(table.columns.begin() + static_cast<std::ptrdiff_t>(c));
    for (TextRow& row : table.rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(c));
  }
  return text_table(table.columns, table.rows);
}

std::string markdown_of_table(const Table& table) {
  std::string text = "|", rule = "|";
  for (const TextColumn& column : table.columns) {
    text += fmt::format(" {} |", column.header);
    rule += column.left ? " --- |" : " ---: |";
  }
  text += "\n" + rule + "\n";
  for (const TextRow& row : table.rows) {
    text += "|";
    for (const std::string& cell : row) {
      std::string safe;
      for (const char c : printable(cell))
        safe += c == '|' ? std::string("\\|") : std::string(1, c);
      text += fmt::format(" {} |", safe);
    }
    text += "\n";
  }
  return text;
}

// How far apart the rounds of a variant were, over its median; the largest of all.
double largest_spread(const StudyResult& result) {
  double largest = 0;
  for (const VariantResult& variant : result.variants)
    if (variant.spread)
      largest = std::max(largest, (variant.spread->high - variant.spread->low) / *variant.seconds);
  return largest;
}

// What a reader has to know of the figures.
std::vector<std::string> notes_of(const StudyResult& result) {
  std::vector<std::string> notes;
  if (!result.is_complete())
    notes.push_back(
        fmt::format("{} of {} measurements are still to be taken: ridge study --resume {}",
                    result.left, result.measured + result.left, result.name));
  if (result.definition.rounds < static_cast<std::int64_t>(rounds_for_interval))
    notes.push_back(fmt::format(
        "ms/step is the median over the rounds. An interval of a median takes {} rounds: with {} "
        "the table has the fastest and the slowest.",
        rounds_for_interval, result.definition.rounds));
  if (!result.definition.variants.front().size.empty())
    notes.emplace_back(
        "Parameters are counted on the model that ran. The workshop's figure is its claim.");
  if (const double spread = largest_spread(result); spread > unsteady_spread)
    notes.push_back(fmt::format(
        "The rounds of a variant differ by up to {:.0f} %: something else used the machine.",
        100 * spread));
  if (result.machines > 1)
    notes.push_back(fmt::format(
        "The runs are of {} machines or settings of one: times compare badly", result.machines));
  if (result.programs > 1)
    notes.push_back(fmt::format("The runs are of {} builds of the program", result.programs));
  return notes;
}

// A paragraph that begins a new line at the width of a page.
std::string wrapped(std::string_view text, std::string_view indent) {
  constexpr std::size_t width = 100;
  std::string out, line(indent);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (line.size() > indent.size() && line.size() + 1 + word.size() > width) {
      out += line + "\n";
      line = indent;
    }
    line += (line.size() > indent.size() ? " " : "") + std::string(word);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out + line + "\n";
}

Json json_of(const std::optional<Interval>& interval) {
  return interval ? Json::array({interval->low, interval->high}) : Json();
}

template <class T>
Json json_of(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json json_of(const Law& law) {
  constexpr std::string_view forms[] = {"linear", "quadratic", "power"};
  Json intervals = Json::array();
  for (const Interval& interval : law.intervals)
    intervals.push_back(Json::array({interval.low, interval.high}));
  return {{"form", forms[static_cast<int>(law.form)]},
          {"coefficients", law.coefficients},
          {"intervals", intervals},
          {"error", law.error}};
}

Json json_of(const StudyLaw& law) {
  Json points = Json::array();
  for (const StudyPoint& point : law.points)
    points.push_back({{"variant", point.variant},
                      {"x", point.x},
                      {"y", point.y},
                      {"spread", json_of(point.spread)}});
  Json json{{"quantity", name_of(law.quantity)},
            {"unit", unit_of(law.quantity)},
            {"axis", law.axis},
            {"where", law.where},
            {"points", points},
            {"growth", nullptr},
            {"power", nullptr},
            {"error", json_of(law.error())},
            {"saturating_batch", json_of(saturating_batch(law))}};
  if (law.growth) json["growth"] = json_of(*law.growth);
  if (law.power) json["power"] = json_of(*law.power);
  return json;
}

Json variant_json(const StudyResult& result, std::size_t v) {
  const StudyVariant& variant = result.definition.variants[v];
  const VariantPlan& plan = result.plans[v];
  const VariantResult& measured = result.variants[v];
  Json settings = Json::object(), rounds = Json::array();
  for (const auto& [option, value] : variant.settings) settings[option] = value;
  for (const RunRow& run : measured.runs)
    rounds.push_back({{"run", run.id},
                      {"median_seconds", json_of(run.median_seconds)},
                      {"samples_per_second", json_of(run.samples_per_second)}});
  return {{"name", name_of(variant)},
          {"size", variant.size},
          {"settings", settings},
          {"outcome", measured.outcome},
          {"parameters", plan.parameters},
          {"claimed_parameters", claim_of(variant)},
          {"flops_per_step", plan.flops},
          {"bytes_per_step", plan.bytes},
          {"attention_flops", plan.attention_flops},
          {"feed_forward_flops", plan.feed_forward_flops},
          {"parameter_bytes", plan.parameter_bytes},
          {"planned_peak_bytes", plan.peak_bytes},
          {"mean_bytes", plan.mean_bytes},
          {"attention_bytes_at_peak", plan.attention_peak_bytes},
          {"attention_passes_at", json_of(plan.attention_passes_at)},
          {"needed_bytes", plan.needed_bytes},
          {"available_bytes", plan.available_bytes},
          {"median_seconds", json_of(measured.seconds)},
          {"spread_seconds", json_of(measured.spread)},
          {"samples_per_second", json_of(measured.samples_per_second)},
          {"tokens_per_second", json_of(measured.tokens_per_second)},
          {"peak_bytes", json_of(measured.peak_bytes)},
          {"kernels_per_step", json_of(measured.kernels)},
          {"flops_per_second", json_of(measured.flops_per_second())},
          {"utilization", json_of(result.utilization(v))},
          {"rounds", rounds},
          {"options", ridge::json_of(variant.options)}};
}

}  // namespace

std::string study_text(const StudyResult& result) {
  const std::vector<StudyLaw> laws = laws_of(result);
  std::string text = text_of_table(variants_table(result));
  for (const std::string& note : notes_of(result)) text += wrapped(note, "");
  text += "\nBy the graph of a step\n" + text_of_table(plans_table(result));
  if (const Table factors = factors_table(result); !factors.rows.empty())
    text += fmt::format("\n{}\n", factors_note) + text_of_table(factors);
  if (!laws.empty()) text += fmt::format("\nLaws{}\n", laws_note) + text_of_table(laws_table(laws));
  std::string heading;
  for (const StudyAnswer& answer : answers_of(result, laws)) {
    if (heading != answer.heading) text += fmt::format("\n{}\n", answer.heading);
    heading = answer.heading;
    text += fmt::format("  {}\n{}", answer.question, wrapped(answer.text, "    "));
  }
  return text;
}

std::string study_markdown(const StudyResult& result, std::span<const std::string> pictures) {
  const std::vector<StudyLaw> laws = laws_of(result);
  std::string text =
      fmt::format("# Study {}\n\nBegun {}; variants: {}, rounds: {}.\n\n", printable(result.name),
                  utc_text(result.created), result.variants.size(), result.definition.rounds);
  text += markdown_of_table(variants_table(result));
  for (const std::string& note : notes_of(result)) text += "\n" + wrapped(note, "");
  text += "\n## By the graph of a step\n\n" + markdown_of_table(plans_table(result));
  if (const Table factors = factors_table(result); !factors.rows.empty())
    text += fmt::format("\n## Growth\n\n{}\n\n", factors_note) + markdown_of_table(factors);
  if (!laws.empty())
    text += fmt::format("\n## Laws\n\nThese are laws{}.\n\n", laws_note) +
            markdown_of_table(laws_table(laws));
  for (const std::string& picture : pictures) text += fmt::format("\n![{0}]({0})\n", picture);
  std::string heading;
  for (const StudyAnswer& answer : answers_of(result, laws)) {
    if (heading != answer.heading) text += fmt::format("\n## {}\n", answer.heading);
    heading = answer.heading;
    text += fmt::format("\n**{}**\n\n{}", answer.question, wrapped(answer.text, ""));
  }
  return text;
}

std::string study_json(const StudyResult& result) {
  const std::vector<StudyLaw> laws = laws_of(result);
  Json variants = Json::array(), all_laws = Json::array(), answers = Json::array();
  for (std::size_t v = 0; v < result.variants.size(); ++v)
    variants.push_back(variant_json(result, v));
  for (const StudyLaw& law : laws) all_laws.push_back(json_of(law));
  for (const StudyAnswer& answer : answers_of(result, laws))
    answers.push_back(
        {{"heading", answer.heading}, {"question", answer.question}, {"answer", answer.text}});
  return text_of({{"schema", "ridge-study-result-1"},
                  {"name", result.name},
                  {"created", utc_text(result.created)},
                  {"rounds", result.definition.rounds},
                  {"measured", result.measured},
                  {"left", result.left},
                  {"variants", variants},
                  {"laws", all_laws},
                  {"answers", answers}});
}

}  // namespace ridge
