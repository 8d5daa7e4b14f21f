#include "ridge/trace/diff.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "ridge/base/error.h"
#include "ridge/base/mean_difference.h"
#include "ridge/trace/diff_rows.h"
#include "ridge/trace/times.h"
#include "ridge/trace/tree_match.h"

namespace ridge::trace {
namespace {

void check(const StepTree& tree) {
  if (tree.steps.empty())
    throw FormatError("\"{}\" has no work to compare: neither kernels nor operators", tree.file);
}

// Marks the steps that are compared in each trace.
using Chosen = std::vector<bool>;

std::set<std::int64_t> full_numbers(const StepTree& tree) {
  std::set<std::int64_t> numbers;
  for (const TreeStep& step : tree.steps)
    if (step.full && step.number >= 0) numbers.insert(step.number);
  return numbers;
}

std::pair<Chosen, Chosen> choose(const StepTree& a, const StepTree& b) {
  const std::set<std::int64_t> of_a = full_numbers(a), of_b = full_numbers(b);
  std::set<std::int64_t> both;
  std::ranges::set_intersection(of_a, of_b, std::inserter(both, both.begin()));
  const auto chosen = [&](const StepTree& tree) {
    Chosen steps;
    for (const TreeStep& step : tree.steps)
      steps.push_back(step.full && (both.size() < 2 || both.contains(step.number)));
    return steps;
  };
  return {chosen(a), chosen(b)};
}

DiffSide side_of(const StepTree& tree, const Chosen& chosen) {
  DiffSide side{.file = tree.file,
                .device = tree.device,
                .rank = tree.rank,
                .damage = tree.damage,
                .steps = {},
                .span_us = {},
                .split = {}};
  for (std::size_t i = 0; i < tree.steps.size(); ++i) {
    if (!chosen[i]) continue;
    if (tree.steps[i].number >= 0) side.steps.push_back(tree.steps[i].number);
    side.span_us.push_back(us(tree.steps[i].time.length()));
  }
  StepSplit& split = side.split;
  const auto count = static_cast<double>(side.span_us.size());
  for (const double span : side.span_us) split.span += span / count;
  for (const StepTree::Part& part : tree.parts) {
    if (!chosen[part.step]) continue;
    const WorkClass work = tree.nodes[part.node].work;
    double& line = part.idle                    ? split.idle[static_cast<std::size_t>(*part.idle)]
                   : work == WorkClass::compute ? split.compute
                   : work == WorkClass::communication ? split.exposed_communication
                                                      : split.exposed_copy;
    line += part.us / count;
  }
  return side;
}

}  // namespace

std::string diff_kind_name(DiffKind kind) {
  static constexpr const char* names[] = {
      "appeared",    "vanished", "changed_shape", "changed_kernel", "more_calls",
      "fewer_calls", "slower",   "faster",        "more_idle",      "less_idle"};
  return names[static_cast<std::size_t>(kind)];
}

double TraceDiff::rest_us() const {
  double rest = difference_us();
  for (const DiffRow& row : rows) rest -= row.difference_us();
  return rest;
}

TraceDiff diff_of(const StepTree& before, const StepTree& after) {
  check(before);
  check(after);
  if (before.of_host != after.of_host)
    throw FormatError(
        "\"{}\" is of a run on a card, and \"{}\" of one without: there is nothing "
        "to compare",
        (before.of_host ? after : before).file, (before.of_host ? before : after).file);
  const auto [chosen_before, chosen_after] = choose(before, after);
  TraceDiff diff{.before = side_of(before, chosen_before),
                 .after = side_of(after, chosen_after),
                 .of_host = before.of_host,
                 .interval_us = {},
                 .rows = {},
                 .operators = {}};
  diff.interval_us = mean_difference_interval(diff.before.span_us, diff.after.span_us);
  const SharedNames names(before, after);
  const TreeMatch matched = match(before, after, names);
  const DiffInput input{before, after, chosen_before, chosen_after, names, matched};
  diff.rows = diff_rows(input);
  diff.operators = diff_operators(input);
  return diff;
}

Judgement judge(const TraceDiff& diff, double percent) {
  if (!diff.interval_us) return {};
  std::vector<double> allowed = diff.before.span_us;
  for (double& span : allowed) span *= 1 + percent / 100;
  const auto interval = mean_difference_interval(allowed, diff.after.span_us);
  return {interval->low > 0 ? Verdict::slower : Verdict::not_slower,
          100 * diff.interval_us->low / diff.before.split.span};
}

}  // namespace ridge::trace
