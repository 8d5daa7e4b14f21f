#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridge/analyze/machine_file.h"
#include "ridge/analyze/verify.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/run_request.h"
#include "ridge/cli/terminal.h"
#include "ridge/cli/train_run.h"
#include "ridge/exercise/inspect.h"
#include "ridge/exercise/stage.h"
#include "ridge/session/devices.h"

namespace ridge {
namespace {

constexpr std::int64_t learning_stage = 5;

// A run of the exercise is short, and on the version of the workshop's.
RunOptions exercise_options(std::string_view network) {
  RunOptions options = default_options(network);
  options.version = "v3";
  options.num_steps = 12;
  return options;
}

struct ExerciseRequest {
  explicit ExerciseRequest(Command command)
      : run(command,
            {.defaults = exercise_options,
             .has = all_but({"network", "mode", "image-size", "weights", "channels-last"})}) {}

  RunRequest run;
  std::int64_t stage = 0;
  bool verify = false, reveal = false, fix = false;
};

// Where a run is about learning, it has something to learn: a file beside the results, written if
// no other data was named.
RunOptions options_of(const ExerciseRequest& request) {
  return request.run.options([&](RunOptions& options) {
    if (request.stage != learning_stage || !options.data.empty()) return;
    make_directories(options.output_dir);
    const std::filesystem::path file = std::filesystem::path(options.output_dir) / "sums.txt";
    write_text_file(file, sums_text());
    options.data = file.string();
    if (options.learning_rate == RunOptions{}.learning_rate) options.learning_rate = 1e-3;
  });
}

// Words in lines of at most 98 columns, two of them indentation.
std::string paragraph(std::string_view text) {
  constexpr std::size_t width = 98;
  std::string lines, line = " ";
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    if (line.size() + 1 + space > width) {
      lines += line + "\n";
      line = " ";
    }
    line += fmt::format(" {}", text.substr(0, space));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return lines + line;
}

void print_paragraph(Terminal& terminal, std::string_view heading, std::string_view text) {
  terminal.line("");
  terminal.line(terminal.bold(heading));
  terminal.line(paragraph(text));
}

std::string title_of(const DebugStage& stage) {
  return fmt::format("Debugging exercise, stage {} of {}: {}", stage.number, debug_stages().size(),
                     stage.title);
}

int run_stage(const DebugStage& stage, const RunOptions& options, Device& device) {
  Terminal terminal;
  terminal.line(terminal.bold(title_of(stage)));
  const Defect defect = stage.apply(options, device);
  const int exit_code = train(options, defect.device_or(device), defect.hooks);
  print_paragraph(terminal, "What you see", stage.symptom);
  print_paragraph(terminal, "What to ask", stage.hint);
  print_paragraph(terminal, "When you know",
                  fmt::format("ridge exercise debug --stage {0} --reveal explains it; --fix runs "
                              "it with and without.",
                              stage.number));
  return exit_code;
}

int reveal(const DebugStage& stage) {
  Terminal terminal;
  terminal.line(terminal.bold(title_of(stage)));
  print_paragraph(terminal, "Symptom", stage.symptom);
  print_paragraph(terminal, "Cause", stage.cause);
  print_paragraph(terminal, "Evidence", stage.evidence);
  print_paragraph(terminal, "Fix", stage.fix);
  return 0;
}

// The utilization of the device's peak over the whole step, in percent.
std::string utilization(const RunFacts& run, const Roof& roof, const RunOptions& options) {
  return fmt::format("{:.1f} %", 100 * run.summary.causal_flops_per_second /
                                     roof.flops(options.precision().product_kind()));
}

std::string factor(double defective, double fixed) {
  if (fixed <= 0) return "";
  const double ratio = defective / fixed;
  return ratio < 100 ? fmt::format("{:.3g}x", ratio) : fmt::format("{:.0f}x", ratio);
}

std::string comparison(const RunOptions& options, const RunFacts& bad, const RunFacts& good,
                       const Roof& roof) {
  std::vector<TextRow> rows;
  const auto add = [&](const char* name, auto&& value_of, auto&& text_of) {
    const double b = value_of(bad), g = value_of(good);
    rows.push_back({name, text_of(b), text_of(g), factor(b, g)});
  };
  const auto plain = [](double x) { return fmt::format("{:.4f}", x); };
  const auto time = [](double x) { return format_duration(x); };
  const auto rate = [](double x) { return fmt::format("{:.1f}", x); };
  const auto count = [](double x) { return format_count(static_cast<std::int64_t>(x)); };
  const auto size = [](double x) { return fmt::format("{:.1f} MB", x / 1e6); };
  using R = RunFacts;
  add(
      "Loss at the first step", [](const R& r) { return r.record.steps.front().loss; }, plain);
  add(
      "Loss at the last step", [](const R& r) { return r.record.steps.back().loss; }, plain);
  rows.emplace_back();
  add(
      "Time per step (median)", [](const R& r) { return r.summary.step.median; }, time);
  add(
      "  forward", [](const R& r) { return r.summary.forward.median; }, time);
  add(
      "  backward", [](const R& r) { return r.summary.backward.median; }, time);
  add(
      "  optimizer", [](const R& r) { return r.summary.optimizer.median; }, time);
  add(
      "By the clock on the wall, per step",
      [](const R& r) { return r.record.seconds / static_cast<double>(r.record.steps.size()); },
      time);
  add(
      "Samples per second", [](const R& r) { return r.summary.samples_per_second; }, rate);
  add(
      "GFLOP/s", [](const R& r) { return r.summary.causal_flops_per_second / 1e9; }, rate);
  rows.push_back({"Share of the machine's peak", utilization(bad, roof, options),
                  utilization(good, roof, options), ""});
  rows.emplace_back();
  add(
      "Kernels per step", [](const R& r) { return static_cast<double>(r.kernels); }, count);
  add(
      "MFLOPs per step",
      [](const R& r) { return static_cast<double>(r.record.cost->total().flops) / 1e6; }, rate);
  add(
      "Bytes per step",
      [](const R& r) { return static_cast<double>(r.record.cost->total().bytes()); }, size);
  add(
      "Peak memory", [](const R& r) { return static_cast<double>(r.record.peak_tensor_bytes); },
      size);
  add(
      "Parameters without gradient",
      [](const R& r) { return static_cast<double>(r.without_gradient()); }, count);
  const std::vector<TextColumn> columns{{"", true}, {"Defective"}, {"Fixed"}, {"Ratio"}};
  return text_table(columns, rows);
}

int fix(const DebugStage& stage, const RunOptions& options, Device& device) {
  Terminal terminal;
  const auto observe = [&](const Defect& defect) {
    return observe_run(options, device, defect,
                       [&, progress = progress_on(terminal)](std::int64_t done) {
                         progress(done, options.num_steps);
                       });
  };
  const RunFacts bad = observe(stage.apply(options, device)), good = observe({});
  terminal.erase();
  terminal.line(fmt::format("Stage {}, {} steps each, with the defect and without", stage.number,
                            options.num_steps));
  terminal.line("");
  const KeptRoof kept = roof_of_device(device, [&] {
    terminal.busy(fmt::format("Measuring the ceilings of {}...", device.description()));
  });
  if (!kept.roof) throw OutOfMemoryError("{}", kept.source);
  terminal.lines(comparison(options, bad, good, *kept.roof));
  terminal.line(fmt::format("Fix: {}", stage.fix));
  return 0;
}

std::string parameter_table(const RunFacts& bad, const RunFacts& good) {
  std::vector<TextRow> rows;
  const auto number = [](double x) { return fmt::format("{:.3g}", x); };
  for (std::size_t i = 0; i < good.parameters.size(); ++i) {
    const ParameterFacts &b = bad.parameters[i], &g = good.parameters[i];
    rows.push_back({g.name, fmt::format("{}", g.parameters), number(b.start), number(g.start),
                    number(b.gradient), number(g.gradient)});
  }
  const std::vector<TextColumn> columns{{"Parameter", true}, {"Number"},   {"Start"},
                                        {"sound"},           {"Gradient"}, {"sound"}};
  return text_table(columns, rows);
}

// What `ridge verify` does to versions, done to the run of this stage.
int verify_stage(const DebugStage& stage, const RunOptions& asked, Device& device) {
  Terminal terminal;
  terminal.busy("Computing the reference...");
  const RunOptions options = quick_check_of(asked);
  const Reference reference(options, device);
  const Baseline baseline = baseline_of(reference, options.dtype, device, options.num_steps);
  const Defect defect = stage.apply(options, device);
  const VerifiedSchedule schedule{options.version, options.version, options.enable_pass,
                                  options.disable_pass, options.recompute};
  const Verdict v = verify(reference, schedule, options.dtype, defect.device_or(device), baseline,
                           defect.hooks.rewrite);
  const RunFacts bad = observe_run(options, device, stage.apply(options, device));
  const RunFacts good = observe_run(options, device, {});
  terminal.erase();
  terminal.line(fmt::format("Stage {} against the double-precision reference: {}", stage.number,
                            v.configuration));
  const Tolerance limit = v.limit;
  const auto line = [&](std::string_view what, double error, double most) {
    terminal.line(fmt::format("  {:<42}{:>9.1e}   limit {:.0e}", what, error, most));
  };
  line("Error of the loss", v.loss_error, limit.loss);
  line("Error of the logits", v.logits_error, limit.logits);
  line("Error of the worst gradient", v.gradient_error, limit.gradient);
  line(fmt::format("Difference to v1's loss in {} steps", options.num_steps), v.curve_error,
       limit.curve);
  terminal.line(fmt::format("  {:<42}{:>9}   of {}", "Parameters without gradient", v.cut.size(),
                            reference.parameters.size()));
  terminal.line(v.failure.empty() ? "What it computes is right." : "WRONG: " + v.failure);
  terminal.line("");
  terminal.lines(parameter_table(bad, good));
  terminal.line(
      "Start: root mean square of the weights before the first step. Gradient: its norm in it.");
  return 0;
}

int exercise(const ExerciseRequest& request) {
  const DebugStage& stage = debug_stage(request.stage);
  if (request.verify && (request.reveal || request.fix))
    throw UsageError("--verify looks at the defective run: give it without --reveal and --fix");
  if (request.reveal) reveal(stage);
  if (request.reveal && !request.fix) return 0;
  if (request.reveal) Terminal().line("");
  const RunOptions options = options_of(request);
  const std::unique_ptr<Device> device = open_device(options);
  if (request.fix) return fix(stage, options, *device);
  if (request.verify) return verify_stage(stage, options, *device);
  return run_stage(stage, options, *device);
}

}  // namespace

void add_exercise_command(Command program, Action& action) {
  const Command exercises =
      program.add_subcommand("exercise", "Find the defect in the training of a LLaMA");
  exercises.take_one_subcommand();
  exercises.callback([exercises, &action] {
    if (exercises.chosen_subcommands().empty())
      action = []() -> int {
        throw UsageError("which exercise? there is: ridge exercise debug --stage 1");
      };
  });
  const Command command = exercises.add_subcommand(
      "debug", "Train a LLaMA with a defect, and find it with the other tools");
  const auto request = std::make_shared<ExerciseRequest>(command);
  add_value(command, "--stage", request->stage, "Choose the defect: 1 to 5")
      .type_name("N")
      .group("Exercise");
  command
      .add_flag("--verify", request->verify,
                "Check what the defective run computes against the reference, on a short sequence")
      .group("Exercise");
  command.add_flag("--reveal", request->reveal, "Say what is wrong and where it shows")
      .group("Exercise");
  command.add_flag("--fix", request->fix, "Run with the defect and without, and compare the two")
      .group("Exercise");
  command.footer(
      R"(A stage trains the LLaMA as ridge train does, with all its flags, and writes the same files, so that every
tool that looks at a run can look at it.

Examples:
  ridge exercise debug --stage 1
  ridge exercise debug --stage 2 --profile --profile-dir stage2
  ridge exercise debug --stage 3 --flops
  ridge exercise debug --stage 5 --verify
  ridge exercise debug --stage 4 --reveal --fix
docs/workshop/debugging.md is the guide.)");
  command.callback([request, &action] { action = [request] { return exercise(*request); }; });
}

}  // namespace ridge
