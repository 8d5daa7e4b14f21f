// `ridge gate --self-test`: how often the gate errs on this machine.

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "ridge/base/file.h"
#include "ridge/base/scratch_directory.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/cli/gate_request.h"
#include "ridge/cli/interrupt.h"
#include "ridge/cli/terminal.h"
#include "ridge/study/binomial.h"
#include "ridge/study/paced_run.h"

namespace ridge {
namespace {

constexpr std::int64_t default_rounds = 20;
constexpr double found_share = 0.95;  // of slowdowns, which the gate promises to find

// A step of some milliseconds, so that rounds are short.
const std::vector<std::string> default_command{
    "train", "--hidden-dim", "128", "--n-layers", "2", "--seq-len", "32", "--batch-size", "4"};

// The decisions on one kind of candidate.
struct Tally {
  std::array<std::size_t, 3> verdicts{};  // by GateVerdict
  std::vector<double> seconds;            // that each decision took
  std::size_t rounds() const { return seconds.size(); }
  std::size_t count(GateVerdict verdict) const {
    return verdicts[static_cast<std::size_t>(verdict)];
  }
  void add(GateVerdict verdict, double time) {
    ++verdicts[static_cast<std::size_t>(verdict)];
    seconds.push_back(time);
  }
};

std::string percent(double part) { return fmt::format("{:.1f}", 100 * part); }

TextRow row_of(const std::string& name, const Tally& tally, std::size_t errors) {
  const Interval interval = binomial_interval(errors, tally.rounds());
  const auto rounds = static_cast<double>(tally.rounds());
  const Statistics time = statistics_of(tally.seconds);
  return {name,
          std::to_string(tally.rounds()),
          std::to_string(tally.count(GateVerdict::fine)),
          std::to_string(tally.count(GateVerdict::regression)),
          std::to_string(tally.count(GateVerdict::undecided)),
          fmt::format("{} % [{}, {}]", percent(static_cast<double>(errors) / rounds),
                      percent(interval.low), percent(interval.high)),
          fmt::format("{}, {} at most", format_duration(time.median), format_duration(time.max))};
}

nlohmann::ordered_json json_of(const Tally& tally, std::size_t errors) {
  const Interval interval = binomial_interval(errors, tally.rounds());
  return {{"rounds", tally.rounds()},
          {"fine", tally.count(GateVerdict::fine)},
          {"regression", tally.count(GateVerdict::regression)},
          {"undecided", tally.count(GateVerdict::undecided)},
          {"errors", errors},
          {"error_rate_interval", {interval.low, interval.high}},
          {"seconds", tally.seconds}};
}

}  // namespace

int gate_self_test(const GateRequest& request) {
  Terminal terminal;
  GateRequest with_command = request;
  if (request.command.empty() && request.commands_file.empty())
    with_command.command = default_command;
  const std::vector<std::vector<std::string>> commands = with_command.commands();
  if (commands.size() > 1)
    throw UsageError("--self-test runs one command, not {}", commands.size());
  const std::vector<std::string> names{"time"};
  const RaceRules rules{.criteria = criteria_of(names, request.least_effects),
                        .budget = request.budget,
                        .false_alarms = request.rate()};
  const double slowdown = part_from(request.slowdown.value_or("5%"), "--slowdown", true);
  if (request.slowed_alone && slowdown == 0)
    throw UsageError("--slowed-alone with --slowdown 0 leaves nothing to decide");
  const ScratchDirectory scratch("ridge-gate");
  const auto program = request.candidate_program();
  const auto decide = [&](Tally& tally, double factor, std::uint64_t seed) {
    const ProcessRace processes{.baseline = program,
                                .candidate = program,
                                .command = commands.front(),
                                .scratch = scratch.path(),
                                .candidate_slowdown = factor,
                                .stop = [] { return interrupt_noted() != 0; }};
    RaceRules seeded = rules;
    seeded.seed = seed;
    const CommandResult result = race(seeded, hooks_of(processes));
    tally.add(result.metrics.front().verdict, result.seconds);
  };

  Tally same, slowed;
  const std::int64_t rounds = request.rounds.value_or(default_rounds);
  const auto progress = progress_on(terminal);
  for (std::int64_t round = 0; round < rounds; ++round) {
    const auto seed = static_cast<std::uint64_t>(request.seed + 2 * round);
    if (!request.slowed_alone) decide(same, 1, seed);
    if (slowdown > 0) decide(slowed, 1 + slowdown, seed + 1);
    progress(round + 1, rounds);
  }

  const std::size_t alarms = same.count(GateVerdict::regression),
                    misses = slowed.rounds() - slowed.count(GateVerdict::regression);
  nlohmann::ordered_json json{{"schema", "ridge-gate-self-test-1"},
                              {"command", commands.front()},
                              {"slowdown", slowdown},
                              {"budget", request.budget},
                              {"false_alarm_limit", request.rate()}};
  if (!request.slowed_alone) json["same"] = json_of(same, alarms);
  if (slowdown > 0) json["slowed"] = json_of(slowed, misses);
  const std::string text = json.dump(2) + "\n";
  if (request.json_file == "-") {
    terminal.lines(text);
  } else {
    if (!request.json_file.empty()) write_text_file(request.json_file, text);
    const std::vector<TextColumn> columns{{"Candidate", true},
                                          {"Rounds"},
                                          {"Fine"},
                                          {"Regression"},
                                          {"Undecided"},
                                          {"Errors"},
                                          {"Time of a decision", true}};
    std::vector<TextRow> rows;
    if (!request.slowed_alone) rows.push_back(row_of("the same", same, alarms));
    if (slowdown > 0)
      rows.push_back(row_of(fmt::format("slower by {:g} %", 100 * slowdown), slowed, misses));
    terminal.lines(text_table(columns, rows));
    terminal.line(
        "Errors: false alarms, and slowdowns that were not found, with the 95 % interval of their "
        "rate.");
  }
  const bool alarming =
      same.rounds() > 0 && binomial_interval(alarms, same.rounds()).low > request.rate();
  const bool blind =
      slowdown > 0 && binomial_interval(misses, slowed.rounds()).low > 1 - found_share;
  return alarming || blind ? 1 : 0;
}

}  // namespace ridge
