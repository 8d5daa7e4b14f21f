// `ridge ablate`: what each optimisation is worth.
#include "ridge/analyze/ablation.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "ridge/analyze/verify.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/system.h"
#include "ridge/cli/terminal.h"
#include "ridge/cli/train_request.h"
#include "ridge/cli/turn_taking.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

struct Request {
  explicit Request(CLI::App& command) : training(command) {}

  TrainRequest training;
  std::string from = "v1", to = "v4";
  std::int64_t rounds = 16;
  bool json = false;
};

fs::path prepared_directory(const TrainOptions& options) {
  fs::path directory = options.output_dir;
  std::error_code fault;
  fs::create_directories(directory, fault);
  if (fault) throw IoError("cannot make the directory {}: {}", directory.string(), fault.message());
  probe_writing(directory / "ablation.json");
  return directory;
}

int ablate(const Request& request) {
  const TrainOptions options = request.training.options();
  if (options.version != "v1")
    throw UsageError("ridge ablate goes from --from to --to: leave out --version {}",
                     options.version);
  const Rounds rounds = rounds_of(request.rounds, options.num_steps, options.warmup_steps);
  const std::vector<AblationStep> steps = ablation_steps(options, request.from, request.to);
  const std::unique_ptr<Device> device = open_device(options);
  Terminal terminal;
  const fs::path directory = prepared_directory(options);

  std::vector<TrainOptions> runs;
  std::vector<TrainingPlan> plans;
  for (const AblationStep& step : steps) {
    runs.push_back(step.options);
    plans.push_back(plan_training(step.options, *device));
  }
  const std::vector<TimedRun> timed = time_in_turn(runs, *device, rounds, progress_on(terminal));
  Ablation ablation{.model = fmt::format("{}, {}", describe(options), options.dtype),
                    .device = device->description(),
                    .options = to_json(options),
                    .rounds = rounds};
  for (std::size_t i = 0; i < steps.size(); ++i)
    ablation.rows.push_back(ablation_row(steps[i], timed[i], plans[i]));
  compare_rows(ablation.rows);

  const std::string json = ablation_json(ablation);
  write_text_file(directory / "ablation.json", json);
  write_text_file(directory / "ablation.svg", ablation_svg(ablation));
  write_text_file(directory / "ablation.html", ablation_html(ablation));
  const std::string text = request.json ? json : ablation_text(ablation);
  terminal.line(std::string_view(text).substr(0, text.size() - 1));
  if (!request.json)
    terminal.line(fmt::format("Wrote {}, ablation.svg and ablation.json beside it",
                              (directory / "ablation.html").string()));
  return 0;
}

}  // namespace

void add_ablate_command(CLI::App& program, Action& action) {
  CLI::App& command =
      *program.add_subcommand("ablate", "What each optimisation is worth, from v1 to v4");
  const auto request = std::make_shared<Request>(command);
  command.add_option("--from", request->from, "The version to start from")
      ->type_name("VERSION")
      ->default_str("v1")
      ->group("Ablation");
  command.add_option("--to", request->to, "The version to end with")
      ->type_name("VERSION")
      ->default_str("v4")
      ->group("Ablation");
  add_value(command, "--rounds", request->rounds,
            "How often the runs take turns, sharing out --num-steps; 6 or more for intervals")
      ->type_name("N")
      ->default_str("16")
      ->group("Ablation");
  command.add_flag("--json", request->json, "Print JSON instead of the table")->group("Ablation");
  command.footer(
      R"(Takes the flags of ridge train. Adds one pass after the other, in the order in which the
versions bring them, and times all of these runs in turn, in one process. --num-steps are timed of
each, after --warmup-steps in every round. Writes ablation.html, ablation.svg (the waterfall) and
ablation.json into --output-dir.

Examples:
  ridge ablate
  ridge ablate --from v2 --to v3 --seq-len 512 --rounds 20 --num-steps 100
  ridge ablate --dtype bf16 --disable-pass pointwise --output-dir bf16 --json)");
  command.callback([request, &action] { action = [request] { return ablate(*request); }; });
}

}  // namespace ridge
