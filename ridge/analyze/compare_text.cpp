#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ridge/analyze/compare.h"
#include "ridge/analyze/tables.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/session/json.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

double median(const std::vector<double>& values) { return percentile(values, 0.5); }

std::string per_second(double amount, double seconds) {
  return seconds > 0 ? fmt::format("{:.1f}", amount / seconds) : "-";
}

std::string phase_ms(const std::vector<double>& seconds) {
  return seconds.empty() ? "-" : fmt::format("{:.3f}", median(seconds) * 1e3);
}

std::string milliseconds_text(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }

// Over other work there is none.
std::string speedup_cell(const ComparedRun& first, const ComparedRun& run) {
  return same_work(first, run) ? speedup_text(speedup_of(first, run)) : "-";
}

bool has_prices(const std::vector<ComparedRun>& runs) {
  return std::ranges::any_of(runs,
                             [](const ComparedRun& run) { return run.price_per_hour.has_value(); });
}

// In the currency of the price of an hour.
double price(const ComparedRun& run) {
  return price_of_thousand(run.samples_per_second(), run.price_per_hour.value_or(0));
}

// Which run is the best to have, of runs that are not one work on one machine.
std::string best_text(const std::vector<ComparedRun>& runs) {
  const ComparedRun& fastest =
      *std::ranges::max_element(runs, {}, &ComparedRun::samples_per_second);
  std::string text = fmt::format("Most samples per second: {}, {:.1f}\n", printable(fastest.name),
                                 fastest.samples_per_second());
  if (!has_prices(runs)) return text;
  const ComparedRun& cheapest = *std::ranges::min_element(runs, {}, price);
  return text + fmt::format("Cheapest: {}, {} for 1,000 samples\n", printable(cheapest.name),
                            price_text(price(cheapest)));
}

std::string side_by_side(const std::vector<ComparedRun>& runs) {
  const bool of_tokens =
      std::ranges::any_of(runs, [](const ComparedRun& run) { return run.tokens > 0; });
  const std::vector<std::string> differing = differing_settings(runs);
  constexpr std::size_t longest_setting = 40;
  std::vector<TextColumn> columns{{"Version", true}};
  for (const std::string& name : differing) columns.push_back({name, true, longest_setting});
  for (const char* header :
       {"Samples/s", "Batch ms", "Forward ms", "Backward ms", "Optimizer ms", "Memory MB"})
    columns.push_back({header});
  if (of_tokens) columns.push_back({"Tokens/s"});
  columns.push_back({"Kernels"});
  if (has_prices(runs)) columns.push_back({"Price of 1000"});
  columns.push_back({"Speed-up", true});
  std::vector<TextRow> rows;
  for (const ComparedRun& run : runs) {
    const double seconds = median(run.step);
    const bool first = &run == &runs.front();
    const std::string name =
        run.name == run.version ? run.name : fmt::format("{} ({})", run.name, run.version);
    TextRow& row = rows.emplace_back();
    row = {name};
    for (const std::string& setting : differing) row.push_back(run.value_of(setting));
    for (std::string cell : {per_second(run.samples, seconds), milliseconds_text(seconds),
                             phase_ms(run.forward), phase_ms(run.backward), phase_ms(run.optimizer),
                             fmt::format("{:.1f}", run.peak_bytes / 1e6)})
      row.push_back(std::move(cell));
    if (of_tokens) row.push_back(run.tokens > 0 ? per_second(run.tokens, seconds) : "-");
    row.push_back(run.has_operators ? fmt::format("{:.0f}", run.kernels()) : "-");
    if (has_prices(runs)) row.push_back(run.price_per_hour ? price_text(price(run)) : "-");
    row.push_back(first ? "1.00x" : speedup_cell(runs.front(), run));
  }
  return text_table(columns, rows);
}

std::string count_text(double count) { return fmt::format("{:g}", count); }
std::string megabytes(double bytes) { return fmt::format("{:.2f}", bytes / 1e6); }

// "240 -> 40", or the one number if it is the same.
std::string from_to(const OperatorChange& change, double OperatorUse::*field,
                    std::string (*text)(double)) {
  const std::string before = change.before ? text((*change.before).*field) : "-";
  const std::string after = change.after ? text((*change.after).*field) : "-";
  return before == after ? before : fmt::format("{} -> {}", before, after);
}

// "63.2 -> 41.0": of the time of all operators of its run.
std::string shares(const OperatorChange& change, const OperatorUse& before,
                   const OperatorUse& after) {
  const auto share = [](const std::optional<OperatorUse>& use, const OperatorUse& all) {
    return use && all.seconds > 0 ? fmt::format("{:.1f}", 100 * use->seconds / all.seconds) : "-";
  };
  return fmt::format("{} -> {}", share(change.before, before), share(change.after, after));
}

TextRow cells_of(const OperatorChange& change, const OperatorUse& before,
                 const OperatorUse& after) {
  return {change.name,
          change.fate == OperatorFate::same ? "" : std::string(name_of(change.fate)),
          fmt::format("{:+.3f}", change.seconds() * 1e3),
          from_to(change, &OperatorUse::seconds, milliseconds_text),
          shares(change, before, after),
          from_to(change, &OperatorUse::calls, count_text),
          from_to(change, &OperatorUse::bytes, megabytes)};
}

OperatorUse all_of(const ComparedRun& run) {
  OperatorUse all;
  for (const auto& [name, use] : run.operators) {
    all.seconds += use.seconds;
    all.calls += use.calls;
    all.bytes += use.bytes;
  }
  return all;
}

// "46.0 % less", of something that both have.
std::string less_or_more(double before, double after) {
  if (before <= 0) return "-";
  const double change = 100 * (after / before - 1);
  return fmt::format("{:.1f} % {}", std::abs(change), change <= 0 ? "less" : "more");
}

// Memory and traffic of a run beside those of the first.
std::string memory_text(const ComparedRun& first, const ComparedRun& run) {
  std::string text =
      fmt::format("{} takes {:.1f} MB of memory at its peak, {} takes {:.1f} MB: {}\n",
                  printable(first.name), first.peak_bytes / 1e6, printable(run.name),
                  run.peak_bytes / 1e6, less_or_more(first.peak_bytes, run.peak_bytes));
  if (first.has_operators && run.has_operators)
    text += fmt::format("Its kernels move {:.2f} MB a step, those of the first {:.2f} MB: {}\n",
                        all_of(run).bytes / 1e6, all_of(first).bytes / 1e6,
                        less_or_more(all_of(first).bytes, all_of(run).bytes));
  if (first.round_seconds.empty() && first.resident_bytes > 0 && run.resident_bytes > 0)
    text +=
        fmt::format("Its process takes {:.1f} MB at its peak, that of the first {:.1f} MB: {}\n",
                    run.resident_bytes / 1e6, first.resident_bytes / 1e6,
                    less_or_more(first.resident_bytes, run.resident_bytes));
  return text;
}

// How far the losses of two runs are apart, in the steps that both have.
struct LossDistance {
  std::size_t steps = 0;
  double largest = 0;  // relative to the first run's loss
};
LossDistance loss_distance(const ComparedRun& first, const ComparedRun& run) {
  LossDistance distance{.steps = std::min(first.losses.size(), run.losses.size())};
  for (std::size_t i = 0; i < distance.steps; ++i) {
    const double apart = std::abs(first.losses[i] - run.losses[i]);
    if (!(apart <= 0))
      distance.largest =
          std::max(distance.largest, apart / std::max(std::abs(first.losses[i]), 1e-300));
  }
  return distance;
}

std::string losses_text(const ComparedRun& first, const ComparedRun& run) {
  if (!same_work(first, run) || !first.round_seconds.empty()) return "";
  const LossDistance distance = loss_distance(first, run);
  if (distance.steps == 0) return "";
  const std::string seeds = first.seed == run.seed
                                ? fmt::format("both of seed {}", run.seed)
                                : fmt::format("of seeds {} and {}", first.seed, run.seed);
  return distance.largest == 0
             ? fmt::format("The losses of all {} steps are the same to the last bit, {}\n",
                           distance.steps, seeds)
             : fmt::format("The losses of {} steps differ by up to {:.2g} of themselves, {}\n",
                           distance.steps, distance.largest, seeds);
}

std::string changes_text(const ComparedRun& before, const ComparedRun& after) {
  const std::string title =
      fmt::format("From {} to {}, by operator", printable(before.name), printable(after.name));
  for (const ComparedRun* run : {&before, &after})
    if (!run->has_operators)
      return fmt::format("{}: {} has no operators.json; run it with --profile\n", title,
                         printable(run->name));
  const std::vector<TextColumn> columns{
      {"Operator", true, 32}, {"", true},  {"Change ms"}, {"Time ms"}, {"Share %"},
      {"Calls a step"},       {"MB moved"}};
  std::vector<TextRow> rows;
  const OperatorUse all_before = all_of(before), all_after = all_of(after);
  for (const OperatorChange& change : operator_changes(before, after))
    rows.push_back(cells_of(change, all_before, all_after));
  rows.emplace_back();
  rows.push_back(cells_of({"(all)", all_before, all_after}, all_before, all_after));
  return fmt::format("{}, largest change of time first:\n{}", title, text_table(columns, rows));
}

Json known(const std::vector<double>& seconds) {
  return seconds.empty() ? Json() : Json(median(seconds));
}

Json use_json(const std::optional<OperatorUse>& use) {
  if (!use) return nullptr;
  return {{"seconds", use->seconds}, {"calls", use->calls}, {"bytes", use->bytes}};
}

Json changes_json(const ComparedRun& before, const ComparedRun& after) {
  if (!before.has_operators || !after.has_operators) return nullptr;
  Json changes = Json::array();
  for (const OperatorChange& change : operator_changes(before, after))
    changes.push_back({{"operator", change.name},
                       {"change", name_of(change.fate)},
                       {"seconds_more", change.seconds()},
                       {"before", use_json(change.before)},
                       {"after", use_json(change.after)}});
  return changes;
}

}  // namespace

std::string comparison_text(const std::vector<ComparedRun>& runs) {
  std::string text;
  bool other_work = false;
  for (const ComparedRun& run : runs) {
    const std::string difference = first_difference(runs.front(), run);
    if (difference.empty()) continue;
    const bool work = !same_work(runs.front(), run);
    text +=
        fmt::format("Not the same {}: {}\n", work ? "work" : "conditions", printable(difference));
    other_work |= work;
  }
  if (other_work)
    text += "Where a step is other work there is no speed-up: compare the samples per second.\n";
  const bool alike = text.empty();
  if (!alike) text += "\n";
  text += side_by_side(runs);
  const bool in_turn =
      std::ranges::none_of(runs, [](const ComparedRun& r) { return r.round_seconds.empty(); });
  text += in_turn
              ? "Medians of a step. Speed-up over the first, with its 95 % interval: paired by the "
                "rounds in which all took turns.\n"
              : "Medians of a step. Speed-up over the first, with its 95 % interval over the steps "
                "of each run: what differs\nfrom one run to the next is not in it.\n";
  if (!alike || has_prices(runs)) text += best_text(runs);
  for (std::size_t i = 1; i < runs.size(); ++i)
    text += "\n" + memory_text(runs[0], runs[i]) + losses_text(runs[0], runs[i]) +
            changes_text(runs[0], runs[i]);
  return text;
}

std::string comparison_json(const std::vector<ComparedRun>& runs) {
  Json rows = Json::array();
  for (const ComparedRun& run : runs) {
    const double seconds = median(run.step);
    const bool comparable = same_work(runs.front(), run);
    const Ratio speedup = comparable ? speedup_of(runs.front(), run) : Ratio{};
    Json row{
        {"name", run.name},
        {"version", run.version},
        {"samples_per_second", seconds > 0 ? Json(run.samples / seconds) : Json()},
        {"tokens_per_second", seconds > 0 && run.tokens > 0 ? Json(run.tokens / seconds) : Json()},
        {"batch_seconds", seconds},
        {"forward_seconds", known(run.forward)},
        {"backward_seconds", known(run.backward)},
        {"optimizer_seconds", known(run.optimizer)},
        {"peak_memory_bytes", run.peak_bytes},
        {"kernels", run.has_operators ? Json(run.kernels()) : Json()},
        {"price_of_1000", run.price_per_hour ? Json(price(run)) : Json()},
        {"speedup",
         {{"ratio", comparable ? Json(speedup.value) : Json()},
          {"low", nullptr},
          {"high", nullptr}}}};
    if (speedup.interval) {
      row["speedup"]["low"] = speedup.interval->low;
      row["speedup"]["high"] = speedup.interval->high;
    }
    const std::string difference = first_difference(runs.front(), run);
    row["first_difference"] = difference.empty() ? Json() : Json(difference);
    row["peak_resident_bytes"] = run.resident_bytes > 0 ? Json(run.resident_bytes) : Json();
    row["bytes_moved"] = run.has_operators ? Json(all_of(run).bytes) : Json();
    row["largest_loss_difference"] =
        comparable && runs.front().round_seconds.empty() && !run.losses.empty()
            ? Json(loss_distance(runs.front(), run).largest)
            : Json();
    for (const auto& [name, value] : run.setting) row["setting"][name] = value;
    row["operators"] = changes_json(runs.front(), run);
    rows.push_back(row);
  }
  return text_of({{"runs", rows}});
}

}  // namespace ridge
