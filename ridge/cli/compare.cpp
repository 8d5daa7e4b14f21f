// `ridge compare`: versions and runs side by side.
#include "ridge/analyze/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ridge/analyze/interleaved.h"
#include "ridge/analyze/recorded_step.h"
#include "ridge/base/error.h"
#include "ridge/base/ranges.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/run_request.h"
#include "ridge/cli/terminal.h"
#include "ridge/session/devices.h"

namespace ridge {
namespace {

// Exit codes of --fail-above, beside 0 for "no slower".

struct CompareRequest {
  explicit CompareRequest(Command command) : run(command) {}

  RunRequest run;
  std::vector<std::string> runs;
  std::int64_t rounds = 16;
  std::optional<double> most_slowdown;  // in percent
  std::vector<double> prices;           // of an hour: one for all runs, or one of each
  bool json = false;
};

bool is_schedule(const std::string& name) {
  return std::ranges::find(schedules(), name, &ScheduleRow::name) != schedules().end();
}

// The schedules among the runs, run now.
std::vector<ComparedRun> run_schedules(const CompareRequest& request, Terminal& terminal) {
  if (request.run.was_given("version"))
    throw UsageError(
        "ridge compare takes versions and compile modes by their names: leave out --version");
  const RunOptions options = request.run.options();
  std::vector<Variant> variants;
  for (const std::string& name : request.runs) {
    if (!is_schedule(name)) continue;
    variants.push_back({name, options});
    variants.back().options.version = name;
    variants.back().options.resolve();
  }
  if (variants.empty()) return {};
  const std::unique_ptr<Device> device = open_device(options);
  const Rounds rounds = rounds_of(request.rounds, options.num_steps, options.warmup_steps);
  std::vector<std::vector<OperatorUses>> recorded(variants.size());
  std::vector<Record> records(variants.size());
  const auto note = [&](std::size_t i, Session& session) {
    if (records[i].workload.name.empty()) records[i] = new_record(session);
    record_step(session, [&](const Recording&, const Recording& on_device) {
      recorded[i].push_back(operator_uses(on_device));
    });
  };
  const std::vector<TimedVariant> timed = time_interleaved(
      variants, *device, rounds,
      {.trying = tuning_on(terminal), .progress = progress_on(terminal), .after = note});
  std::vector<ComparedRun> runs;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    if (!timed[i].fault.empty()) throw OutOfMemoryError("{}: {}", variants[i].name, timed[i].fault);
    records[i].steps = timed[i].steps();
    records[i].warmup_steps = 0;  // the timed steps are behind it
    records[i].peak_tensor_bytes = timed[i].peak_tensor_bytes;
    ComparedRun& run = runs.emplace_back(run_of(records[i], variants[i].name));
    run.operators = typical_uses(recorded[i]);
    run.has_operators = true;
    run.round_seconds = timed[i].by_round();
  }
  return runs;
}

std::vector<ComparedRun> runs_of(const CompareRequest& request, Terminal& terminal) {
  std::vector<ComparedRun> runs;
  for (const std::string& name : request.runs)  // errors in files before anything takes time
    runs.push_back(is_schedule(name) ? ComparedRun{} : read_run(name));
  std::vector<ComparedRun> made = run_schedules(request, terminal);
  auto next = made.begin();
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (is_schedule(request.runs[i])) runs[i] = std::move(*next++);
  return runs;
}

// Beside the tables, so that JSON stays JSON.
void complain(std::string_view line) {
  std::fputs(fmt::format("ridge: {}\n", line).c_str(), stderr);
}

// The exit code of --fail-above: whether a run takes longer than the first by more than so many
// percent, beyond doubt.
int judge(const std::vector<ComparedRun>& runs, double percent) {
  int exit_code = 0;
  const ComparedRun& first = runs.front();
  for (const ComparedRun& run : std::span(runs).subspan(1)) {
    if (!same_work(first, run))
      throw UsageError("--fail-above cannot hold {} against {}, which does other work: {}",
                       run.name, first.name, first_difference(first, run));
    const Ratio speedup = speedup_of(first, run);
    if (!speedup.interval) {
      complain(fmt::format("too few steps of {} or {} to say which is slower: let them run longer",
                           first.name, run.name));
      if (exit_code == 0) exit_code = exit_undecided;
    } else if (speedup.interval->high < 1 / (1 + percent / 100)) {
      complain(fmt::format("{} is slower than {} by more than {} %: by {:.1f} % at least", run.name,
                           first.name, percent, 100 * (1 / speedup.interval->high - 1)));
      exit_code = exit_regression;
    }
  }
  return exit_code;
}

int compare(const CompareRequest& request) {
  if (request.runs.size() < 2)
    throw UsageError(
        "compare which runs? name two or more: versions or compile modes (v1 v4 max-autotune), or "
        "directories of runs or profiles");
  if (request.most_slowdown && !(*request.most_slowdown >= 0))
    throw UsageError("--fail-above is {}; it must be at least 0", *request.most_slowdown);
  if (request.prices.size() > 1 && request.prices.size() != request.runs.size())
    throw UsageError("--price-per-hour has {} prices for {} runs: give one for all, or one of each",
                     request.prices.size(), request.runs.size());
  for (const double price : request.prices) check_real("price-per-hour", price, 1e-9, 1e12);
  Terminal terminal;
  std::vector<ComparedRun> runs = runs_of(request, terminal);
  for (std::size_t i = 0; i < runs.size() && !request.prices.empty(); ++i)
    runs[i].price_per_hour = request.prices[request.prices.size() > 1 ? i : 0];
  terminal.lines(request.json ? comparison_json(runs) : comparison_text(runs));
  return request.most_slowdown ? judge(runs, *request.most_slowdown) : 0;
}

}  // namespace

void add_compare_command(Command program, Action& action) {
  const Command command = program.add_subcommand(
      "compare", "Put versions, compile modes, runs or profiles side by side");
  const auto request = std::make_shared<CompareRequest>(command);
  command
      .add_option("runs", request->runs,
                  "Compare versions, compile modes, directories of runs or profiles, or a "
                  "benchmark's JSON")
      .type_name("RUN");
  add_value(command, "--rounds", request->rounds,
            "Split --num-steps into this many interleaved rounds; 6 or more for intervals")
      .type_name("N")
      .default_text("16")
      .group("Comparison");
  add_value(command, "--fail-above", request->most_slowdown,
            "Exit with 1 if a run is slower than the first by more than this, beyond doubt; 3 if "
            "there are too few steps to "
            "tell")
      .type_name("PERCENT")
      .group("Comparison");
  add_value(command, "--price-per-hour", request->prices,
            "Print the price of 1,000 samples, at these prices of an hour of the machines in any "
            "currency: one for all runs, or one of each")
      .type_name("LIST")
      .group("Comparison");
  command.add_flag("--json", request->json, "Print JSON instead of tables").group("Comparison");
  command.footer(
      R"(Versions and compile modes are run now, in turn in one process, with the flags of ridge train or
--mode inference: --num-steps are timed of each, after --warmup-steps in every round. Directories are read: the --output-dir or, for
operators too, the --profile-dir of a run. The first run is what the others are compared with.

Examples:
  ridge compare v1 v2 v3 v4 --hidden-dim 512 --n-layers 8
  ridge compare none default max-autotune --network resnet50 --mode inference
  ridge compare profiles/before profiles/after
  ridge compare before.json after.json
  ridge compare resnet18.json resnet50.json --price-per-hour 2.50
  ridge compare baseline v4 --fail-above 5)");
  command.callback([request, &action] { action = [request] { return compare(*request); }; });
}

}  // namespace ridge
