// What a reader in a hurry reads, and the findings.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "ridge/base/units.h"
#include "ridge/report/runs/sections.h"
#include "ridge/study/study_tables.h"
#include "ridge/study/utc.h"

namespace ridge {
namespace {

constexpr std::size_t most_sentences = 6;
constexpr std::size_t most_findings = 8;    // of clear differences: the largest
constexpr std::size_t most_runs_named = 6;  // of a variant, as evidence
constexpr std::size_t most_operators = 3;   // that a finding names
constexpr double least_share = 0.02;        // of a step, by which an operator is worth naming
constexpr std::string_view nothing_found =
    "There is one configuration, and nothing that it could be compared with: the figures above are "
    "all there is to say.";

std::string minute_text(std::int64_t time) {
  std::string text = utc_text(time).substr(0, 16);
  text[10] = ' ';
  return text;
}

std::string hardware_text(const RunRow& row) {
  return row.gpu.empty() ? fmt::format("{} with {}", row.cpu, counted(row.cores, "core")) : row.gpu;
}

// "48 of 48 measurements".
std::string subject(const ReportFacts& facts) {
  const StudyResult& result = facts.result;
  const std::string what = facts.workloads.size() == 1
                               ? fmt::format("{} in {}", facts.workloads.front(),
                                             facts.training ? "training" : "inference")
                               : counted(std::ssize(facts.workloads), "workload");
  if (result.gathered)
    return fmt::format("This report is of {} of {} in {}", counted(facts.runs, "run"), what,
                       counted(std::ssize(result.variants), "configuration"));
  return fmt::format("The study {} measured {} of {} in {}", result.name,
                     counted(std::ssize(result.variants), "variant"), what,
                     counted(result.definition.rounds, "round"));
}

std::string scope(const ReportFacts& facts) {
  const std::string from = minute_text(facts.first), to = minute_text(facts.last);
  const std::string when =
      from == to ? fmt::format("on {} UTC", from) : fmt::format("between {} and {} UTC", from, to);
  const std::string where = facts.machines.size() == 1
                                ? hardware_text(facts.machines.front().row)
                                : counted(std::ssize(facts.machines), "machine");
  return fmt::format("{}, on {}, {}.", subject(facts), where, when);
}

// Samples a second of the median step. Not RunRow's rate, which is that of the mean: one slow step
// of a few would decide it.
double rate_of(const ReportFacts& facts, std::size_t v) {
  return static_cast<double>(facts.result.plans[v].samples_per_step) /
         *facts.result.variants[v].seconds;
}

// Rates of different workloads, or of samples of different sizes, are no race.
bool rates_compare(const ReportFacts& facts) {
  const auto measured = facts.measured();
  const auto size_of = [&](std::size_t v) {
    const RunRow& row = facts.result.variants[v].runs.back();
    return std::tuple(row.workload, row.mode, row.seq_len, row.image_size);
  };
  return std::ranges::all_of(measured, [&](std::size_t v) {
    return facts.result.plans[v].samples_per_step > 0 && size_of(v) == size_of(measured.front());
  });
}

std::string speed_text(const ReportFacts& facts, std::size_t v) {
  return fmt::format("{} at {} a step", rate_text(rate_of(facts, v)),
                     milliseconds_text(*facts.result.variants[v].seconds));
}

std::string range(const ReportFacts& facts) {
  const std::vector<std::size_t> measured = facts.measured();
  if (measured.size() == 1) {
    const MeasuredVariant& variant = facts.result.variants[measured.front()];
    std::string text =
        fmt::format("A step takes {} in the median over {}", milliseconds_text(*variant.seconds),
                    counted(std::ssize(variant.runs), "run"));
    if (variant.spread)
      text += fmt::format(" ({} to {})", milliseconds_text(variant.spread->low),
                          milliseconds_text(variant.spread->high));
    if (rates_compare(facts))
      text += fmt::format(", which is {}", rate_text(rate_of(facts, measured.front())));
    return text + ".";
  }
  const bool by_rate = rates_compare(facts);
  const auto slowness = [&](std::size_t v) {
    const MeasuredVariant& variant = facts.result.variants[v];
    return by_rate ? -rate_of(facts, v) : *variant.seconds;
  };
  const std::size_t best = *std::ranges::min_element(measured, {}, slowness);
  const std::size_t worst = *std::ranges::max_element(measured, {}, slowness);
  if (slowness(best) == slowness(worst))
    return fmt::format("A step takes {} in all of them.",
                       milliseconds_text(*facts.result.variants[best].seconds));
  if (by_rate)
    return fmt::format(
        "The variant {} has the highest throughput ({}), and {} has the lowest ({}).",
        facts.name_of_variant(best), speed_text(facts, best), facts.name_of_variant(worst),
        speed_text(facts, worst));
  return fmt::format("The shortest step is that of {} ({}), and the longest that of {} ({}).",
                     facts.name_of_variant(best), milliseconds_text(slowness(best)),
                     facts.name_of_variant(worst), milliseconds_text(slowness(worst)));
}

// The clear differences, the largest first.
std::vector<const StudyComparison*> clear_ones(const ReportFacts& facts) {
  std::vector<const StudyComparison*> clear;
  for (const StudyComparison& comparison : facts.comparisons)
    if (comparison.is_clear()) clear.push_back(&comparison);
  std::ranges::stable_sort(clear, std::ranges::greater(), [](const StudyComparison* comparison) {
    return std::abs(std::log(comparison->time.value));
  });
  return clear;
}

std::string difference(const ReportFacts& facts) {
  if (facts.comparisons.empty()) return "";
  const std::vector<const StudyComparison*> clear = clear_ones(facts);
  const auto all = facts.comparisons.size();
  if (clear.empty())
    return all == 1 ? fmt::format(
                          "Whether {} or {} is faster is not clear: the ratio of their step times "
                          "is {}.",
                          facts.name_of_variant(facts.comparisons.front().after),
                          facts.name_of_variant(facts.comparisons.front().before),
                          ratio_text(facts.comparisons.front().time))
                    : fmt::format(
                          "Between variants that do the same work no difference of step times is "
                          "clear, in {} comparisons.",
                          all);
  const StudyComparison& largest = *clear.front();
  std::string text = fmt::format("For the same work the step of {} takes {} times that of {}",
                                 facts.name_of_variant(largest.after), ratio_text(largest.time),
                                 facts.name_of_variant(largest.before));
  if (all > 1)
    text += fmt::format(", the largest of {} clear {} in {} comparisons", clear.size(),
                        clear.size() == 1 ? "difference" : "differences", all);
  return text + ".";
}

std::string memory(const ReportFacts& facts) {
  std::vector<std::size_t> known = facts.measured();
  std::erase_if(known, [&](std::size_t v) { return !facts.result.variants[v].peak_bytes; });
  if (known.empty()) return "";
  const auto peak = [&](std::size_t v) { return *facts.result.variants[v].peak_bytes; };
  const std::size_t least = *std::ranges::min_element(known, {}, peak);
  const std::size_t most = *std::ranges::max_element(known, {}, peak);
  if (peak(least) == peak(most))
    return fmt::format("The peak of memory is {}{}.", megabytes_text(peak(most)),
                       known.size() > 1 ? " in all of them" : "");
  return fmt::format("The peak of memory goes from {} ({}) to {} ({}).",
                     megabytes_text(peak(least)), facts.name_of_variant(least),
                     megabytes_text(peak(most)), facts.name_of_variant(most));
}

std::string axis_number(double x) { return fmt::format("{:.6g}", x); }

// The time of a step by what was varied: of several laws the one that fits best.
std::string law(const ReportFacts& facts) {
  const StudyLaw* best = nullptr;
  for (const StudyLaw& one : facts.laws)
    if (one.quantity == StudyQuantity::step_time && one.error() && one.points.size() > 2 &&
        (!best || *one.error() < *best->error()))
      best = &one;
  if (!best) return "";
  std::string text = fmt::format(
      "Over {} from {} to {}{} a step takes {} ms, x being {} (root mean square error {:.1f} %)",
      best->axis, axis_number(best->points.front().x), axis_number(best->points.back().x),
      best->where.empty() ? "" : fmt::format(" ({})", best->where), best->text(), best->axis,
      100 * *best->error());
  for (const StudyLaw& one : facts.laws)
    if (one.quantity == StudyQuantity::throughput && one.axis == best->axis &&
        one.where == best->where)
      if (const auto batch = saturating_batch(one))
        text += fmt::format(
            ", so that a batch of {:.0f} reaches 90 % of the {} that larger ones "
            "approach",
            std::ceil(*batch), rate_text(one.saturation->most));
  return text + ".";
}

std::string sentence_of(std::string text) {
  if (!text.ends_with('.')) text += '.';
  return text;
}

// What limits all the above.
std::string caution(const ReportFacts& facts) {
  std::string text;
  if (facts.result.machines > 1)
    return fmt::format(
        "The runs are of {} machines, or of one with different settings: differences between them "
        "are differences of machines too.",
        facts.result.machines);
  for (const std::string& note : notes_of(facts.result))
    if (note.find("still to be taken") != std::string::npos ||
        note.find("differ by up to") != std::string::npos)
      text += (text.empty() ? "" : " ") + sentence_of(note);
  return text;
}

std::string runs_named(const ReportFacts& facts, std::size_t v) {
  const std::vector<RunRow>& runs = facts.result.variants[v].runs;
  std::vector<std::string> ids;
  for (const RunRow& run : runs)
    if (ids.size() < most_runs_named) ids.push_back(std::to_string(run.id));
  return fmt::format("{} {}{}", runs.size() == 1 ? "run" : "runs", fmt::join(ids, ", "),
                     runs.size() > ids.size() ? " and others" : "");
}

// Which operators make the difference, where both newest runs were profiled.
std::string operators_text(const ReportFacts& facts, const StudyComparison& comparison) {
  const auto &before = facts.newest[comparison.before], &after = facts.newest[comparison.after];
  if (!before || !after || !before->compared || !after->compared ||
      !before->compared->has_operators || !after->compared->has_operators)
    return "";
  std::vector<std::string> parts;
  for (const OperatorChange& change : operator_changes(*before->compared, *after->compared)) {
    const double step = *facts.result.variants[comparison.before].seconds;
    if (parts.size() == most_operators || std::abs(change.seconds()) < least_share * step) break;
    const auto time = [](const std::optional<OperatorUse>& use) {
      return use ? milliseconds_text(use->seconds) : std::string("nothing");
    };
    parts.push_back(
        fmt::format("{} from {} to {}", change.name, time(change.before), time(change.after)));
  }
  return parts.empty() ? "" : fmt::format(" By operator, a step has {}.", fmt::join(parts, ", "));
}

ReportFinding finding_of(const ReportFacts& facts, const StudyComparison& comparison) {
  const bool is_faster = comparison.time.value < 1;
  const std::string after = facts.name_of_variant(comparison.after),
                    before = facts.name_of_variant(comparison.before);
  ReportFinding finding{
      .statement = fmt::format("{} is {} than {}: a step takes {:.2f} of the time.", after,
                               is_faster ? "faster" : "slower", before, comparison.time.value),
      .evidence =
          fmt::format("The ratio is {}, by {}: {} against {} in the median, of {} and {}.",
                      ratio_text(comparison.time), basis_text(comparison),
                      milliseconds_text(*facts.result.variants[comparison.after].seconds),
                      milliseconds_text(*facts.result.variants[comparison.before].seconds),
                      runs_named(facts, comparison.after), runs_named(facts, comparison.before))};
  if (comparison.memory)
    finding.evidence +=
        fmt::format(" Its peak of memory is {:.2f} times as large.", *comparison.memory);
  finding.evidence += operators_text(facts, comparison);
  return finding;
}

// Those of which nobody can say which is faster, in one.
void add_unclear(const ReportFacts& facts, std::vector<ReportFinding>& findings) {
  std::vector<std::string> parts;
  for (const StudyComparison& comparison : facts.comparisons)
    if (!comparison.is_clear() && parts.size() < most_findings)
      parts.push_back(fmt::format("{} against {}: {}, by {}",
                                  facts.name_of_variant(comparison.after),
                                  facts.name_of_variant(comparison.before),
                                  ratio_text(comparison.time), basis_text(comparison)));
  if (parts.empty()) return;
  findings.push_back(
      {.statement = "These differences of step times are not clear.",
       .evidence = fmt::format("{}. An interval that encloses 1 leaves open which is faster, and "
                               "without one there are too few measurements to say.",
                               fmt::join(parts, "; "))});
}

}  // namespace

std::vector<std::string> summary_of(const ReportFacts& facts) {
  std::vector<std::string> sentences;
  for (std::string sentence :
       {scope(facts), range(facts), difference(facts), memory(facts), law(facts), caution(facts)})
    if (!sentence.empty() && sentences.size() < most_sentences)
      sentences.push_back(std::move(sentence));
  return sentences;
}

std::vector<ReportFinding> findings_of(const ReportFacts& facts) {
  std::vector<ReportFinding> findings;
  for (const StudyComparison* comparison : clear_ones(facts))
    if (findings.size() < most_findings) findings.push_back(finding_of(facts, *comparison));
  add_unclear(facts, findings);
  for (const StudyAnswer& answer : facts.answers)
    findings.push_back({.statement = answer.question, .evidence = answer.text});
  return findings;
}

ReportSection findings_section(const ReportFacts& facts) {
  ReportSection section{.heading = "Findings", .blocks = {}};
  std::string heading;
  const std::vector<ReportFinding> findings = findings_of(facts);
  const std::size_t own = findings.size() - facts.answers.size();
  for (std::size_t i = 0; i < findings.size(); ++i) {
    if (i >= own && facts.answers[i - own].heading != heading) {
      heading = facts.answers[i - own].heading;
      section.blocks.emplace_back(ReportHeading{heading});
    }
    section.blocks.emplace_back(findings[i]);
  }
  if (findings.empty()) section.blocks.emplace_back(ReportText{fmt::format("{}", nothing_found)});
  return section;
}

}  // namespace ridge
