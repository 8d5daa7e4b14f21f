#include "ridge/session/belief.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ridge/base/lines.h"
#include "ridge/base/processor_use.h"
#include "ridge/base/units.h"

namespace ridge {
namespace {

using Verdict = BeliefCheck::Verdict;

// The first step that counts may take so many times the median.
constexpr double warm = 1.25;
// A step may take this part of its least time: ceilings are measured, and are off by some percent.
constexpr double possible = 0.9;
// How far the first loss may be from that of a guess, as a part of it.
constexpr double near_a_guess = 0.15;
// Fewer times than this have no interval of their median (sign_interval()).
constexpr std::int64_t enough_steps = 6;

Verdict within(bool holds) { return holds ? Verdict::good : Verdict::doubtful; }

const Statistics& times_of(const Record& record, const Summary& summary) {
  return record.by_device ? summary.device : summary.step;
}

double seconds_of(const Record& record, const StepReport& step) {
  return record.by_device ? step.device_seconds : step.seconds;
}

BeliefCheck enough(const Summary& summary) {
  const std::int64_t counted = summary.steps - summary.steps_left_out - summary.recorded_left_out;
  return {"enough", within(counted >= enough_steps), static_cast<double>(counted), enough_steps,
          fmt::format("The averages are over {} step{}; from {} on the median has an interval.",
                      counted, counted == 1 ? "" : "s", enough_steps)};
}

BeliefCheck steady(const Summary& summary) {
  const Statistics& times = summary.device;
  BeliefCheck check{.name = "steady", .limit = Summary::unsteady_variation};
  if (times.count < 2) {
    check.finding = "One time alone does not say how far times vary.";
    return check;
  }
  check.value = times.variation();
  check.verdict = within(!summary.unsteady());
  check.finding = fmt::format(
      "The times vary by {:.1f} % (standard deviation over mean); up to {:.1f} % is steady.",
      100 * times.variation(), 100 * Summary::unsteady_variation);
  return check;
}

BeliefCheck warm_up(const Record& record, const Summary& summary) {
  BeliefCheck check{.name = "warm_up", .limit = warm};
  const double median = times_of(record, summary).median;
  if (median <= 0 || summary.steps_left_out == 0) {
    check.finding = "No step was left out to warm up, so the first is in the averages.";
    check.verdict = within(record.warmup_steps == 0 && summary.steps > 1 && median > 0 &&
                           seconds_of(record, record.steps.front()) <= warm * median);
    if (median > 0) check.value = seconds_of(record, record.steps.front()) / median;
    return check;
  }
  const auto ratio = [&](std::int64_t step) {
    return seconds_of(record, record.steps[static_cast<std::size_t>(step)]) / median;
  };
  check.value = ratio(summary.steps_left_out);
  check.verdict = within(*check.value <= warm);
  check.finding = fmt::format(
      "The first step took {:.2f} times the median, as {}. The first {} are left out, and the next "
      "took {:.2f} times the median; up to {:.2f} is warm.",
      ratio(0),
      record.system.device == "cpu"
          ? "its kernels touch their memory and build their code for the first time"
          : "the device loads the code of its kernels and raises its clock",
      summary.steps_left_out == 1 ? "step" : fmt::format("{} steps", summary.steps_left_out),
      *check.value, warm);
  return check;
}

BeliefCheck quiet(const Record& record) {
  BeliefCheck check{
      .name = "quiet", .value = record.busy_processors_of_others, .limit = quiet_processors};
  if (!check.value) {
    check.finding = "Whether other programs ran is not known: the run was too short to tell.";
    return check;
  }
  check.verdict = within(*check.value <= quiet_processors);
  check.finding =
      fmt::format("Other programs kept {:.2f} processors busy meanwhile; up to {:.2f} is quiet.",
                  *check.value, quiet_processors);
  return check;
}

BeliefCheck long_enough(const Record& record, const Summary& summary) {
  BeliefCheck check{.name = "possible", .limit = possible};
  const double median = times_of(record, summary).median;
  if (record.least_step_seconds <= 0) {
    check.finding =
        "Whether the time is possible is not known: ridge roofline has not measured the device.";
    return check;
  }
  check.value = median / record.least_step_seconds;
  check.verdict = within(*check.value >= possible);
  check.finding = fmt::format(
      "A step takes {}, {:.1f} times the {} that its kernels need at the ceilings{}.",
      format_duration(median), *check.value, format_duration(record.least_step_seconds),
      check.verdict == Verdict::good
          ? fmt::format("; less than {:.1f} times would be too short to be true", possible)
          : ": too short to be true, unless the ceilings are too low, which ridge roofline "
            "measures");
  return check;
}

BeliefCheck finite(const Record& record) {
  const auto first = std::ranges::find_if(
      record.steps, [](const StepReport& step) { return !std::isfinite(step.loss); });
  if (first == record.steps.end())
    return {"finite", Verdict::good, {}, {}, "The losses of all steps are finite numbers."};
  return {"finite",
          Verdict::doubtful,
          {},
          {},
          fmt::format("The loss of step {} is {}.", first->step, format_loss(first->loss))};
}

// Only of weights that nobody has trained, which know no target from another.
bool begins_untrained(const Record& record) {
  const RunOptions& o = record.options;
  return o.resume.empty() && o.init_from.empty() && o.weights.empty() &&
         record.workload.classes > 1 && record.steps.front().step == 1;
}

BeliefCheck first_loss(const Record& record) {
  const double guess = std::log(static_cast<double>(record.workload.classes));
  const double loss = record.steps.front().loss;
  return {"first_loss", within(std::abs(loss - guess) <= near_a_guess * guess), loss, guess,
          fmt::format("The first loss is {}; fresh weights guess among {} targets, which costs "
                      "ln({}) = {:.4f}, and up to {:.0f} % from that is near.",
                      format_loss(loss), format_count(record.workload.classes),
                      record.workload.classes, guess, 100 * near_a_guess)};
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  constexpr std::string_view names[] = {"good", "doubtful", "unknown"};
  return names[static_cast<std::size_t>(verdict)];
}

bool Belief::is_doubtful() const {
  return std::ranges::count(checks, Verdict::doubtful, &BeliefCheck::verdict) > 0;
}

Belief belief_of(const Record& record, const Summary& summary) {
  Belief belief;
  if (record.steps.empty()) return belief;
  belief.checks = {enough(summary),
                   steady(summary),
                   warm_up(record, summary),
                   quiet(record),
                   long_enough(record, summary),
                   finite(record)};
  if (begins_untrained(record)) belief.checks.push_back(first_loss(record));
  return belief;
}

std::string belief_text(const Belief& belief) {
  if (belief.checks.empty()) return "";
  const auto doubts = std::ranges::count(belief.checks, Verdict::doubtful, &BeliefCheck::verdict);
  Lines line;
  line("Is this run to be believed? {}",
       doubts == 0 ? "Yes"
                   : fmt::format("With doubts: {} of {} checks", doubts, belief.checks.size()));
  for (const BeliefCheck& check : belief.checks)
    line("  {:<9}{}", name_of(check.verdict), check.finding);
  return line.text;
}

nlohmann::ordered_json json_of(const Belief& belief) {
  const auto number = [](const std::optional<double>& x) {
    return x ? nlohmann::ordered_json(*x) : nlohmann::ordered_json();
  };
  auto checks = nlohmann::ordered_json::array();
  for (const BeliefCheck& check : belief.checks)
    checks.push_back({{"name", check.name},
                      {"verdict", name_of(check.verdict)},
                      {"value", number(check.value)},
                      {"limit", number(check.limit)},
                      {"finding", check.finding}});
  return checks;
}

}  // namespace ridge
