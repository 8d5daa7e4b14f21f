// `ridge gate`: is this program slower, larger or less right than another?

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/child_process.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/scratch_directory.h"
#include "ridge/base/units.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/flags.h"
#include "ridge/cli/gate_request.h"
#include "ridge/cli/interrupt.h"
#include "ridge/cli/terminal.h"
#include "ridge/study/gate_history.h"
#include "ridge/study/gate_report.h"
#include "ridge/study/paced_run.h"
#include "ridge/study/recorded_baseline.h"
#include "ridge/study/store.h"
#include "ridge/study/store_file.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using Judgement = GateResult::Outcome;

// What the candidate is compared with: a program, or the runs of one.
struct Baseline {
  fs::path program;  // empty: there are runs
  std::vector<RunDocument> runs;
};

Baseline baseline_of(const GateRequest& request) {
  const fs::path file = request.baseline;
  std::error_code fault;
  if (is_program(file)) return {.program = fs::absolute(file), .runs = {}};
  if (fs::is_regular_file(file, fault)) return {.program = {}, .runs = runs_in_file(file)};
  if (!find_store_file(request.store))
    throw UsageError(
        "there is no baseline {}: no program or file of that name, and no store with tags or "
        "commits; see ridge store init",
        request.baseline);
  Store store(existing_store_file(request.store));
  return {.program = {}, .runs = runs_named(store, request.baseline)};
}

bool stopped() { return interrupt_noted() != 0; }

class Gate {
 public:
  Gate(const GateRequest& request, Terminal& terminal)
      : request_(request),
        terminal_(terminal),
        criteria_(criteria_of(request.metrics, request.least_effects)),
        commands_(request.commands()),
        candidate_(request.candidate_program()),
        baseline_(baseline_of(request)),
        scratch_("ridge-gate") {
    const auto timed = static_cast<double>(
        std::ranges::count_if(criteria_, &GateCriterion::is_timed) * std::ssize(commands_));
    false_alarms_ = request.rate() / std::max(1.0, timed);
  }

  GateResult run() {
    GateResult result{.baseline = request_.baseline,
                      .candidate = request_.candidate.empty() ? "this program" : request_.candidate,
                      .commands = {},
                      .false_alarms = request_.rate()};
    for (const std::vector<std::string>& command : commands_) {
      CommandResult found;
      try {
        found = baseline_.program.empty() ? against_runs(command) : against_program(command);
      } catch (const UsageError&) {
        throw;
      } catch (const GateInterrupted&) {
        throw;
      } catch (const Error& error) {
        found.fault = error.what();
      }
      found.command = shell_line(command);
      result.commands.push_back(std::move(found));
    }
    control_false_discoveries(result);
    return result;
  }

 private:
  CommandResult against_program(const std::vector<std::string>& command) {
    const ProcessRace processes{.baseline = baseline_.program,
                                .candidate = candidate_,
                                .command = command,
                                .scratch = scratch_.path(),
                                .stop = stopped};
    RaceHooks hooks = hooks_of(processes);
    hooks.progress = [&](double part, std::size_t pairs) {
      terminal_.busy(fmt::format("{} pairs of processes, {} of {} left", pairs,
                                 format_duration((1 - part) * request_.budget),
                                 format_duration(request_.budget)));
    };
    terminal_.busy("Starting both programs...");
    return race({.criteria = criteria_,
                 .budget = request_.budget,
                 .false_alarms = false_alarms_,
                 .seed = static_cast<std::uint64_t>(request_.seed)},
                hooks);
  }

  CommandResult against_runs(const std::vector<std::string>& command) {
    const ProcessRace processes{.baseline = {},
                                .candidate = candidate_,
                                .command = command,
                                .scratch = scratch_.path(),
                                .stop = stopped};
    const RaceHooks hooks = hooks_of(processes);
    std::size_t runs = 0;
    const auto run_once = [&] {
      terminal_.busy(fmt::format("Run {} of the candidate...", ++runs));
      const std::unique_ptr<Racer> racer = hooks.start(Side::candidate, false);
      racer->ready();
      return racer->finish();
    };
    return compare_with_records({.criteria = criteria_,
                                 .budget = request_.budget,
                                 .false_alarms = false_alarms_,
                                 .other_machines = request_.other_machines},
                                baseline_.runs, run_once, hooks.now);
  }

  const GateRequest& request_;
  Terminal& terminal_;
  std::vector<GateCriterion> criteria_;
  std::vector<std::vector<std::string>> commands_;
  fs::path candidate_;
  Baseline baseline_;
  ScratchDirectory scratch_;
  double false_alarms_ = 0;  // of each timed metric
};

// Now, not after minutes, is the time to learn that a file cannot be written.
void probe(const GateRequest& request) {
  for (const std::string& file : {request.json_file, request.junit_file, request.markdown_file})
    if (!file.empty() && file != "-") probe_writing(file);
  if ((request.json_file == "-") + (request.junit_file == "-") + (request.markdown_file == "-") > 1)
    throw UsageError("only one of --json, --junit and --markdown can be printed");
}

// Writes a report, or prints it: true if it was printed.
bool write(const std::string& file, const std::string& text, Terminal& terminal) {
  if (file == "-") terminal.lines(text);
  if (!file.empty() && file != "-") write_text_file(file, text);
  return file == "-";
}

int judge(const GateRequest& request, Terminal& terminal) {
  const GateResult result = Gate(request, terminal).run();
  bool printed = write(request.json_file, gate_json(result), terminal);
  printed |= write(request.junit_file, gate_junit(result), terminal);
  printed |= write(request.markdown_file, gate_markdown(result), terminal);
  if (!printed) terminal.lines(gate_text(result));
  const auto failed = std::ranges::find_if(
      result.commands, [](const CommandResult& command) { return !command.fault.empty(); });
  if (failed != result.commands.end()) throw Error("{}", failed->fault);
  return result.outcome() == Judgement::regression  ? exit_regression
         : result.outcome() == Judgement::undecided ? exit_undecided
                                                    : 0;
}

double history_effect(const GateRequest& request) {
  if (request.least_effects.empty()) return HistoryRules{}.least_effect;
  const std::string& text = request.least_effects.back();
  return part_from(text.substr(text.find('=') + 1), "--least-effect");
}

int history(const GateRequest& request, Terminal& terminal) {
  Store store(existing_store_file(request.store));
  const HistoryRules rules{.filter = request.filter,
                           .metric = request.history_metric.value_or(HistoryRules{}.metric),
                           .least_effect = history_effect(request)};
  const std::vector<HistoryGroup> groups = history_of(store, rules);
  if (!write(request.json_file, history_json(groups, rules), terminal))
    terminal.lines(history_text(groups, rules));
  return std::ranges::any_of(groups, &HistoryGroup::is_regression) ? exit_regression : 0;
}

int gate(const GateRequest& request) {
  request.check();
  probe(request);
  Terminal terminal;
  if (request.history) return history(request, terminal);
  note_interrupts();
  try {
    return request.self_test ? gate_self_test(request) : judge(request, terminal);
  } catch (const GateInterrupted&) {
    terminal.line("Interrupted");
    return 128 + interrupt_noted();
  }
}

void add_comparison(Command command, GateRequest& request) {
  command
      .add_option("command", request.command,
                  "Run this command of ridge: behind --, train or bench with flags")
      .type_name("COMMAND");
  const auto add = [&](const char* flag, auto& field, const char* help, const char* type) {
    add_value(command, flag, field, help).type_name(type).group("Comparison");
  };
  add("--baseline", request.baseline,
      "Compare with this program, or with recorded runs: those of a tag, of a commit, or of a file "
      "of ridge runs export or performance_summary.json",
      "WHAT");
  add("--candidate", request.candidate, "Test this program (default: the one that is running)",
      "PROGRAM");
  add("--commands", request.commands_file, "Run the commands of this file, one a line", "FILE");
  add("--metrics", request.metrics,
      "Compare these (default: time,memory,kernels,flops,loss; there are forward, backward and "
      "optimizer too)",
      "LIST");
  add("--least-effect", request.least_effects,
      "Let smaller changes pass, such as time=1%,memory=1MB (default: time=2%, loss=1e-4, or 1e-2 "
      "in 16 bits; anything more for the others)",
      "LIST");
  add("--budget", request.budget, "Measure each command for so many seconds at most", "SECONDS");
  add("--false-alarms", request.false_alarms,
      "Find regressions where there are none this often at most (default: 0.5%)", "PART");
  add("--seed", request.seed, "Toss the coin for the order of turns from this seed", "N");
  add("--store", request.store,
      "Look for a tag or commit here (default: $RIDGE_STORE, else .ridge/runs.db here or above)",
      "FILE");
  command
      .add_flag("--other-machines", request.other_machines,
                "Compare with runs that were recorded on other machines too")
      .group("Comparison");
}

void add_history(Command command, GateRequest& request) {
  const char* const group = "History";
  command
      .add_flag(
          "--history", request.history,
          "Look for changes in the runs of a store; exit with 1 if the newest is for the worse")
      .group(group);
  add_value(command, "--filter", request.filter, "Take the runs for which this holds")
      .type_name("FILTER")
      .group(group);
  add_value(command, "--metric", request.history_metric,
            "Look at this column (default: median_seconds)")
      .type_name("COLUMN")
      .group(group);
}

void add_self_test(Command command, GateRequest& request) {
  const char* const group = "Self-test";
  command
      .add_flag(
          "--self-test", request.self_test,
          "Compare the candidate with itself, and with itself slowed down; print how often the "
          "gate errs here")
      .group(group);
  add_value(command, "--rounds", request.rounds, "Decide so often of each (default: 20)")
      .type_name("N")
      .group(group);
  add_value(command, "--slowdown", request.slowdown,
            "Slow down by this part, or 0 to count false alarms alone (default: 5%)")
      .type_name("PART")
      .group(group);
  command
      .add_flag("--slowed-alone", request.slowed_alone,
                "Decide on the slowed candidate alone, which takes half the time")
      .group(group);
}

void add_output(Command command, GateRequest& request) {
  const auto add = [&](const char* flag, std::string& field, const char* help) {
    add_value(command, flag, field, help).type_name("FILE").group("Output");
  };
  add("--json", request.json_file, "Write the result as JSON; - prints it");
  add("--junit", request.junit_file, "Write it as JUnit XML, which continuous integration reads");
  add("--markdown", request.markdown_file, "Write it as Markdown, for a pull request");
}

}  // namespace

void add_gate_command(Command program, Action& action) {
  const Command command =
      program.add_subcommand("gate", "Find out whether a program got slower, larger or wrong");
  const auto request = std::make_shared<GateRequest>();
  add_comparison(command, *request);
  add_history(command, *request);
  add_self_test(command, *request);
  add_output(command, *request);
  command.footer(
      R"(Two programs take turns at the steps of a command, in fresh processes again and again, until the
difference in time is decided. Exit codes: 0 fine, 1 regression or failure, 2 usage, 3 undecided.

Examples:
  ridge gate --baseline ./ridge-before -- train --version v4 --dtype bf16
  ridge gate --baseline ./ridge-before --least-effect time=1% -- bench --network resnet50
  ridge gate --baseline ./ridge-before --commands suite.txt --junit gate.xml --markdown gate.md
  ridge gate --baseline release-1 -- train --num-steps 20
  ridge gate --baseline runs.jsonl --metrics memory,kernels,flops -- train --num-steps 20
  ridge gate --history --filter workload=tiny_llama
  ridge gate --self-test --rounds 20 -- train --hidden-dim 128)");
  command.callback([request, &action] { action = [request] { return gate(*request); }; });
}

}  // namespace ridge
