// `ridge compare`: versions and runs side by side.
#include "ridge/analyze/compare.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "ridge/base/error.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/system.h"
#include "ridge/cli/terminal.h"
#include "ridge/cli/train_request.h"
#include "ridge/cli/turn_taking.h"
#include "ridge/passes/versions.h"
#include "ridge/profile/recorder.h"
#include "ridge/session/summary.h"

namespace ridge {
namespace {

struct Request {
  explicit Request(CLI::App& command) : training(command) {}

  TrainRequest training;
  std::vector<std::string> runs;
  std::int64_t rounds = 16;
  std::optional<double> most_slowdown;  // in percent
  bool json = false;
};

bool is_version(const std::string& name) {
  return std::ranges::find(versions(), name, &Version::name) != versions().end();
}

// Where the time of one more step goes, apart from those that are timed: recording has a price.
OperatorUses record_step(Trainer& trainer) {
  Recorder recorder({.memory = false});
  recorder.attach(trainer.executor());
  recorder.begin_step(trainer.steps_done() + 1);
  recorder.end_step(trainer.step().loss);
  recorder.detach(trainer.executor());
  return operator_uses(recorder.recording());
}

// A run as its files would have it.
ComparedRun run_of(TrainOptions options, const TimedRun& timed,
                   const std::vector<OperatorUses>& recorded, const Device& device) {
  options.warmup_steps = 0;  // the timed steps are behind it
  RunRecord record{.peak_tensor_bytes = timed.peak_bytes};
  for (const std::vector<StepReport>& round : timed.rounds)
    record.steps.insert(record.steps.end(), round.begin(), round.end());
  const std::string summary = performance_json(options, record, summarize(options, record),
                                               system_info(device, options), utc_timestamp());
  ComparedRun run = parse_run(options.version, options.version, summary, "");
  run.operators = typical_uses(recorded);
  run.has_operators = true;
  run.round_seconds = timed.by_round(&StepReport::seconds);
  return run;
}

// The versions among the runs, run now.
std::vector<ComparedRun> run_versions(const Request& request, Terminal& terminal) {
  const TrainOptions options = request.training.options();
  if (options.version != "v1")
    throw UsageError("ridge compare takes versions by their names: leave out --version {}",
                     options.version);
  std::vector<TrainOptions> asked;
  for (const std::string& name : request.runs) {
    if (!is_version(name)) continue;
    asked.push_back(options);
    asked.back().version = name;
    asked.back().resolve();
  }
  if (asked.empty()) return {};
  const std::unique_ptr<Device> device = open_device(options);
  const Rounds rounds = rounds_of(request.rounds, options.num_steps, options.warmup_steps);
  std::vector<std::vector<OperatorUses>> recorded(asked.size());
  TurnTaking hooks = progress_on(terminal);
  hooks.after = [&](std::size_t run, Trainer& trainer) {
    recorded[run].push_back(record_step(trainer));
  };
  const std::vector<TimedRun> timed = time_in_turn(asked, *device, rounds, hooks);
  std::vector<ComparedRun> runs;
  for (std::size_t i = 0; i < asked.size(); ++i)
    runs.push_back(run_of(asked[i], timed[i], recorded[i], *device));
  return runs;
}

std::vector<ComparedRun> runs_of(const Request& request, Terminal& terminal) {
  std::vector<ComparedRun> runs;
  for (const std::string& name : request.runs)  // errors in files before anything takes time
    runs.push_back(is_version(name) ? ComparedRun{} : read_run(name));
  std::vector<ComparedRun> made = run_versions(request, terminal);
  auto next = made.begin();
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (is_version(request.runs[i])) runs[i] = std::move(*next++);
  return runs;
}

// Throws if a run takes longer than the first by more than so many percent, beyond doubt.
void refuse_slower(const std::vector<ComparedRun>& runs, double percent) {
  for (std::size_t i = 1; i < runs.size(); ++i) {
    const Ratio speedup = speedup_of(runs.front(), runs[i]);
    if (!speedup.interval)
      throw Error("too few steps of {} or {} to say which is slower: let them run longer",
                  runs.front().name, runs[i].name);
    if (speedup.interval->high < 1 / (1 + percent / 100))
      throw Error("{} is slower than {} by more than {} %: {:.1f} % at least", runs[i].name,
                  runs.front().name, percent, 100 * (1 / speedup.interval->high - 1));
  }
}

int compare(const Request& request) {
  if (request.runs.size() < 2)
    throw UsageError(
        "compare which runs? name two or more: versions (v1 v4) or directories of "
        "runs or profiles");
  if (request.most_slowdown && !(*request.most_slowdown >= 0))
    throw UsageError("--fail-above is {}; it must be at least 0", *request.most_slowdown);
  Terminal terminal;
  const std::vector<ComparedRun> runs = runs_of(request, terminal);
  const std::string text = request.json ? comparison_json(runs) : comparison_text(runs);
  terminal.line(std::string_view(text).substr(0, text.size() - 1));
  if (request.most_slowdown) refuse_slower(runs, *request.most_slowdown);
  return 0;
}

}  // namespace

void add_compare_command(CLI::App& program, Action& action) {
  CLI::App& command = *program.add_subcommand("compare", "Versions, runs or profiles side by side");
  const auto request = std::make_shared<Request>(command);
  command.add_option("runs", request->runs, "v1 to v4, or directories of runs or profiles")
      ->type_name("RUN");
  add_value(command, "--rounds", request->rounds,
            "How often versions take turns, sharing out --num-steps; 6 or more for intervals")
      ->type_name("N")
      ->default_str("16")
      ->group("Comparison");
  add_value(command, "--fail-above", request->most_slowdown,
            "Exit code 1 if a run is slower than the first by more than this, beyond doubt")
      ->type_name("PERCENT")
      ->group("Comparison");
  command.add_flag("--json", request->json, "Print JSON instead of tables")->group("Comparison");
  command.footer(
      R"(Versions are run now, in turn in one process, with the flags of ridge train: --num-steps are
timed of each, after --warmup-steps in every round. Directories are read: the --output-dir or, for
operators too, the --profile-dir of a run. The first run is what the others are compared with.

Examples:
  ridge compare v1 v2 v3 v4 --hidden-dim 512 --n-layers 8
  ridge compare profiles/before profiles/after
  ridge compare baseline v4 --fail-above 5)");
  command.callback([request, &action] { action = [request] { return compare(*request); }; });
}

}  // namespace ridge
