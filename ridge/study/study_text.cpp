#include "ridge/study/study_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ridge/base/markdown.h"
#include "ridge/base/text_table.h"
#include "ridge/session/json.h"
#include "ridge/study/study_laws.h"
#include "ridge/study/study_tables.h"
#include "ridge/study/utc.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of_table(const StudyTable& table) { return text_table(table.columns, table.rows); }
std::string markdown_of_table(const StudyTable& table) {
  return markdown_table(table.columns, table.rows);
}

// Lines of a page's width; what goes on with an item of a list stands under its text.
std::string wrapped(std::string_view text, std::string_view indent) {
  constexpr std::size_t width = 100;
  std::string out;
  for (const auto& [is_item, line] : paragraph_lines(text)) {
    const std::string whole = (is_item ? "- " : "") + std::string(line);
    for (const char c : ridge::wrapped(whole, width - indent.size(), is_item ? "  " : "") + "\n") {
      if (out.empty() || out.back() == '\n') out += indent;
      out += c;
    }
  }
  return out;
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

Json json_of(const ScalingPoint& point) {
  return {{"scaling", point.is_weak ? "weak" : "strong"},
          {"ranks", point.ranks},
          {"alone", point.alone},
          {"together", point.together},
          {"batch_of_rank", point.batch_of_rank},
          {"batch", point.batch},
          {"samples_per_second_alone", point.samples_per_second_alone},
          {"samples_per_second", point.samples_per_second},
          {"efficiency", point.efficiency.value},
          {"interval", json_of(point.efficiency.interval)}};
}

Json variant_json(const StudyResult& result, std::size_t v) {
  const StudyVariant& variant = result.definition.variants[v];
  const VariantPlan& plan = result.plans[v];
  const MeasuredVariant& measured = result.variants[v];
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
  if (const StudyTable factors = factors_table(result); !factors.rows.empty())
    text += fmt::format("\n{}\n", factors_note) + text_of_table(factors);
  if (const auto scaling = scaling_of(result); !scaling.empty())
    text += "\n" + wrapped(scaling_note, "") + text_of_table(scaling_table(scaling));
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
  std::string text = fmt::format("# Study {}\n\nBegun {}; variants: {}, rounds: {}.\n\n",
                                 markdown_escaped(result.name), utc_text(result.created),
                                 result.variants.size(), result.definition.rounds);
  text += markdown_of_table(variants_table(result));
  for (const std::string& note : notes_of(result)) text += "\n" + wrapped(note, "");
  text += "\n## By the graph of a step\n\n" + markdown_of_table(plans_table(result));
  if (const StudyTable factors = factors_table(result); !factors.rows.empty())
    text += fmt::format("\n## Growth\n\n{}\n\n", factors_note) + markdown_of_table(factors);
  if (const auto scaling = scaling_of(result); !scaling.empty())
    text += fmt::format("\n## Several ranks\n\n{}\n", wrapped(scaling_note, "")) +
            markdown_of_table(scaling_table(scaling));
  if (!laws.empty())
    text += fmt::format("\n## Laws\n\nThese are laws{}.\n\n", laws_note) +
            markdown_of_table(laws_table(laws));
  for (const std::string& picture : pictures) text += fmt::format("\n![{0}]({0})\n", picture);
  std::string heading;
  for (const StudyAnswer& answer : answers_of(result, laws)) {
    if (heading != answer.heading) text += fmt::format("\n## {}\n", answer.heading);
    heading = answer.heading;
    text += fmt::format("\n**{}**\n\n{}", answer.question,
                        wrapped(markdown_paragraphs(answer.text), ""));
  }
  return text;
}

std::string study_json(const StudyResult& result) {
  const std::vector<StudyLaw> laws = laws_of(result);
  Json variants = Json::array(), all_laws = Json::array(), scaling = Json::array(),
       answers = Json::array();
  for (std::size_t v = 0; v < result.variants.size(); ++v)
    variants.push_back(variant_json(result, v));
  for (const StudyLaw& law : laws) all_laws.push_back(json_of(law));
  for (const ScalingPoint& point : scaling_of(result)) scaling.push_back(json_of(point));
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
                  {"scaling", scaling},
                  {"laws", all_laws},
                  {"answers", answers}});
}

}  // namespace ridge
