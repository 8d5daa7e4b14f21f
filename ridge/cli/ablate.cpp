// `ridge ablate`: what each optimization is worth.
#include "ridge/analyze/ablation.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/run_request.h"
#include "ridge/cli/terminal.h"
#include "ridge/session/devices.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

struct AblateRequest {
  explicit AblateRequest(Command command) : run(command) {}

  RunRequest run;
  std::string from = "v1", to = "v4";
  std::int64_t rounds = 16;
  bool json = false;
};

int ablate(const AblateRequest& request) {
  if (request.run.was_given("version"))
    throw UsageError("ridge ablate goes from --from to --to: leave out --version");
  const RunOptions options = request.run.options();
  const Rounds rounds = rounds_of(request.rounds, options.num_steps, options.warmup_steps);
  const std::unique_ptr<Device> device = open_device(options);
  const std::vector<AblationStep> steps =
      ablation_steps(options, *device, request.from, request.to);
  Terminal terminal;
  const fs::path directory = options.output_dir;
  make_directories(directory);
  probe_writing(directory / "ablation.json");

  std::vector<Variant> variants;
  std::vector<StepPlan> plans;
  for (const AblationStep& step : steps) {
    variants.push_back({step.pass.empty() ? request.from : step.pass, step.options});
    plans.push_back(plan_step(step.options, *device));
  }
  const std::vector<TimedVariant> timed =
      time_interleaved(variants, *device, rounds,
                       {.trying = tuning_on(terminal), .progress = progress_on(terminal)});
  const WorkloadInfo workload = workload_of(options).info;
  Ablation ablation{.model = fmt::format("{}: {}, {} in {}", workload.title, workload.description,
                                         options.mode, options.dtype),
                    .device = device->description(),
                    .options = options,
                    .rounds = rounds};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!timed[i].fault.empty()) throw OutOfMemoryError("{}: {}", variants[i].name, timed[i].fault);
    ablation.rows.push_back(ablation_row(steps[i], timed[i], plans[i]));
  }
  compare_rows(ablation.rows);

  const std::string json = ablation_json(ablation);
  write_text_file(directory / "ablation.json", json);
  write_text_file(directory / "ablation.svg", ablation_svg(ablation));
  write_text_file(directory / "ablation.html", ablation_html(ablation));
  terminal.lines(request.json ? json : ablation_text(ablation));
  if (!request.json)
    terminal.line(fmt::format("Wrote {}, ablation.svg and ablation.json beside it",
                              (directory / "ablation.html").string()));
  return 0;
}

}  // namespace

void add_ablate_command(Command program, Action& action) {
  const Command command =
      program.add_subcommand("ablate", "Measure what each optimization is worth, from v1 to v4");
  const auto request = std::make_shared<AblateRequest>(command);
  command.add_option("--from", request->from, "Start from this version or compile mode")
      .type_name("VERSION")
      .default_text("v1")
      .group("Ablation");
  command.add_option("--to", request->to, "End with this version or compile mode")
      .type_name("VERSION")
      .default_text("v4")
      .group("Ablation");
  add_value(command, "--rounds", request->rounds,
            "Split --num-steps into this many interleaved rounds; 6 or more for intervals")
      .type_name("N")
      .default_text("16")
      .group("Ablation");
  command.add_flag("--json", request->json, "Print JSON instead of the table").group("Ablation");
  command.footer(
      R"(Takes the flags of ridge train, and --mode inference. Adds one pass after the other, in the order in
which the versions or compile modes bring them, leaves out those that find nothing in this graph,
and times all of these runs in turn, in one process. --num-steps are timed of each, after
--warmup-steps in every round. Writes ablation.html, ablation.svg (the waterfall) and ablation.json
into --output-dir.

Examples:
  ridge ablate
  ridge ablate --from v2 --to v3 --seq-len 512 --rounds 20 --num-steps 100
  ridge ablate --network resnet50 --mode inference --from none --to max-autotune
  ridge ablate --dtype bf16 --disable-pass pointwise --output-dir bf16 --json)");
  command.callback([request, &action] { action = [request] { return ablate(*request); }; });
}

}  // namespace ridge
