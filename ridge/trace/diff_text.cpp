#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/trace/diff.h"
#include "ridge/trace/report.h"
#include "ridge/trace/times.h"
#include "ridge/trace/work_tables.h"

namespace ridge::trace {
namespace {

constexpr std::size_t path_width = 40, kernel_width = 44, shape_width = 26;

std::string signed_time(double us) { return (us < 0 ? "-" : "+") + time(std::abs(us)); }

std::string signed_percent(double part) { return (part < 0 ? "" : "+") + format_percent(part); }

// The part of the whole difference; "-" where that is next to nothing.
std::string part(double us, const TraceDiff& diff) {
  const double all = diff.difference_us();
  if (std::abs(all) < 1e-3 * diff.before.split.span) return "-";
  return std::abs(us / all) < 5e-4 ? "0.0 %" : format_percent(us / all);
}

// "4", or "4.5" where steps differ.
std::string calls(double number) {
  const double whole = std::round(number);
  return std::abs(number - whole) < 1e-6 ? format_count(static_cast<std::int64_t>(whole))
                                         : fmt::format("{:.1f}", number);
}

std::string changed(const std::string& before, const std::string& after) {
  return before == after ? before : before + " -> " + after;
}

// "4 to 9", or each where some are left out.
std::string steps_text(const DiffSide& side) {
  const std::vector<std::int64_t>& steps = side.steps;
  if (steps.empty()) return "the whole trace";
  if (steps.size() == 1) return fmt::format("step {}", steps.front());
  const bool all = steps.back() - steps.front() + 1 == std::ssize(steps);
  return all ? fmt::format("steps {} to {}", steps.front(), steps.back())
             : fmt::format("{} of the steps {} to {}", steps.size(), steps.front(), steps.back());
}

std::string side_text(std::string_view name, const DiffSide& side) {
  std::string text = fmt::format("{}: {}", name, printable(side.file));
  if (side.rank) text += fmt::format(", rank {}", *side.rank);
  if (!side.device.empty()) text += ", " + printable(side.device);
  return wrapped(text + ", " + steps_text(side), sentence_width, "  ") + "\n" +
         damage_text(side.damage);
}

std::string interval_text(const TraceDiff& diff) {
  const std::size_t before = diff.before.span_us.size(), after = diff.after.span_us.size();
  if (!diff.interval_us) return "There are too few whole steps to say how far that is chance.";
  const auto [low, high] = *diff.interval_us;
  return fmt::format(
      "{} lies between {} and {} with 95 %, by {} and {} steps.",
      low <= 0 && high >= 0 ? "That may be chance: the difference" : "The difference",
      signed_time(low), signed_time(high), before, after);
}

std::string head_text(const TraceDiff& diff) {
  const double before = diff.before.split.span, after = diff.after.split.span;
  const std::string_view what = diff.before.steps.empty() ? "The whole trace" : "A step";
  std::string text = side_text("Before", diff.before) + side_text("After", diff.after);
  std::string sentence =
      fmt::format("{} takes {} before and {} after", what, time(before), time(after));
  if (before > 0)
    sentence +=
        fmt::format(": {}, {}", signed_time(after - before), signed_percent(after / before - 1));
  sentence += ". " + interval_text(diff);
  if (diff.of_host) sentence += " Nothing ran on a card, so the times are of the host's operators.";
  if (diff.before.device != diff.after.device) sentence += " The cards differ.";
  return text + wrapped(sentence, sentence_width) + "\n";
}

std::string split_text(const TraceDiff& diff) {
  const TextColumn columns[] = {
      {"Where the time went", true}, {"Before"}, {"After"}, {"Difference"}, {"of all"}};
  std::vector<TextRow> rows;
  const auto add = [&](const std::string& name, double before, double after) {
    if (before <= 0 && after <= 0) return;
    rows.push_back(
        {name, time(before), time(after), signed_time(after - before), part(after - before, diff)});
  };
  const StepSplit &before = diff.before.split, &after = diff.after.split;
  add("computing", before.compute, after.compute);
  add("communicating, and no kernel computed", before.exposed_communication,
      after.exposed_communication);
  add("copying, and no kernel ran", before.exposed_copy, after.exposed_copy);
  for (std::size_t i = 0; i < idle_causes; ++i)
    add("idle: " + (diff.of_host ? std::string("no operator ran")
                                 : idle_cause_sentence(static_cast<IdleCause>(i))),
        before.idle[i], after.idle[i]);
  rows.emplace_back();
  add(diff.before.steps.empty() ? "all" : "a step", before.span, after.span);
  return "\n" + text_table(columns, rows);
}

// The innermost names of a path that fit.
std::string path_end(const DiffRow& row) {
  if (row.path.empty()) return "(outside of operators)";
  const std::string path = printable(row.path);
  constexpr std::string_view between = " > ", left_out = "... > ";
  std::size_t at = path.rfind(between);
  if (display_width(path) <= path_width || at == path.npos) return path;
  while (at > 0) {
    const std::size_t outer = path.rfind(between, at - 1);
    const std::size_t begin = outer == path.npos ? 0 : outer + between.size();
    if (display_width(path.substr(begin)) + left_out.size() > path_width || outer == path.npos)
      break;
    at = outer;
  }
  return std::string(left_out) + path.substr(at + between.size());
}

std::string shape_text(const DiffRow& row) {
  if (row.shape_before.empty() || row.shape_after.empty() || row.shape_before == row.shape_after)
    return row.shape_before.empty() ? row.shape_after : row.shape_before;
  return shortened(printable(row.shape_before), shape_width / 2 - 2) + " -> " +
         shortened(printable(row.shape_after), shape_width / 2 - 2);
}

std::string what_text(const DiffRow& row, bool of_host) {
  if (row.idle) return of_host ? "no operator ran" : idle_cause_sentence(*row.idle);
  const auto name = [](const std::string& kernel) {
    const bool copies = kernel.starts_with("Mem");  // "Memcpy HtoD (Pinned -> Device)"
    return printable(copies ? kernel : short_kernel_name(kernel));
  };
  if (row.kernels > 1) {
    const std::string rest =
        fmt::format(", and {} more", counted(static_cast<std::int64_t>(row.kernels) - 1, "kernel"));
    const std::string first =
        name(row.kernel_before.empty() ? row.kernel_after : row.kernel_before);
    return shortened(first, kernel_width - rest.size()) + rest;
  }
  if (row.kernel_before.empty() || row.kernel_after.empty() ||
      row.kernel_before == row.kernel_after)
    return name(row.kernel_before.empty() ? row.kernel_after : row.kernel_before);
  const std::string before = shortened(name(row.kernel_before), kernel_width / 2 - 2),
                    after = shortened(name(row.kernel_after), kernel_width / 2 - 2);
  if (before != after) return before + " -> " + after;
  constexpr std::string_view another = " -> another of it";
  return shortened(name(row.kernel_before), kernel_width - another.size()) + std::string(another);
}

std::string kind_text(DiffKind kind) {
  std::string text = diff_kind_name(kind);
  std::ranges::replace(text, '_', ' ');
  return text;
}

std::string rows_text(const TraceDiff& diff, std::size_t top) {
  if (diff.rows.empty()) return "\nThe steps do the same in the same time.\n";
  const TextColumn columns[] = {{"Change", true},
                                {"Operator", true, path_width},
                                {"Input shapes", true, shape_width},
                                {diff.of_host ? "" : "Kernel, or why idle", true, kernel_width},
                                {"Calls"},
                                {"Before"},
                                {"After"},
                                {"Difference"},
                                {"of all"}};
  std::vector<TextRow> rows;
  double rest = diff.difference_us();
  for (std::size_t i = 0; i < std::min(top, diff.rows.size()); ++i) {
    const DiffRow& row = diff.rows[i];
    rows.push_back({kind_text(row.kind), path_end(row), shape_text(row),
                    what_text(row, diff.of_host),
                    row.idle ? "" : changed(calls(row.calls_before), calls(row.calls_after)),
                    time(row.before_us), time(row.after_us), signed_time(row.difference_us()),
                    part(row.difference_us(), diff)});
    rest -= row.difference_us();
  }
  if (diff.rows.size() > top)
    rows.push_back({fmt::format("{} more", format_count(std::ssize(diff.rows) -
                                                        static_cast<std::int64_t>(top))),
                    "", "", "", "", "", "", signed_time(rest), part(rest, diff)});
  return fmt::format("\nWhat differs, largest first ({})\n{}",
                     counted(std::ssize(diff.rows), "row"), text_table(columns, rows));
}

}  // namespace

std::string diff_text(const std::vector<TraceDiff>& diffs, std::size_t top) {
  std::string text;
  for (const TraceDiff& diff : diffs) {
    if (!text.empty()) text += "\n\n";
    text += head_text(diff) + split_text(diff) + rows_text(diff, top);
  }
  return text;
}

}  // namespace ridge::trace
