#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <exception>
#include <filesystem>
#include <memory>

#include "ridge/analyze/plan.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/units.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/interrupt.h"
#include "ridge/cli/last_words.h"
#include "ridge/cli/profiling.h"
#include "ridge/cli/run_text.h"
#include "ridge/cli/system.h"
#include "ridge/cli/terminal.h"
#include "ridge/cli/train_request.h"
#include "ridge/cli/train_run.h"
#include "ridge/run/autotuner.h"
#include "ridge/run/outside_ranges.h"
#include "ridge/session/checkpoint.h"
#include "ridge/session/data.h"
#include "ridge/session/hf.h"
#include "ridge/session/summary.h"
#include "ridge/session/trainer.h"

namespace ridge {
namespace {

struct Request {
  Request(CLI::App& command, const char* version) : training(command, version) {}

  TrainRequest training;
  bool print_config = false;
};

std::filesystem::path checkpoint_path(const TrainOptions& options) {
  return std::filesystem::path(options.output_dir) / "checkpoint.safetensors";
}

std::vector<std::filesystem::path> report_directories(const TrainOptions& options) {
  std::vector<std::filesystem::path> directories{options.output_dir};
  if (options.profiling()) directories.emplace_back(options.profile_dir);
  return directories;
}

// Now, not after hours of training, is the time to learn that a directory cannot be written.
void prepare_directories(const TrainOptions& options) {
  for (const std::filesystem::path& directory : report_directories(options)) {
    std::error_code fault;
    std::filesystem::create_directories(directory, fault);
    if (fault)
      throw IoError("cannot make the directory {}: {}", directory.string(), fault.message());
    remove_abandoned_files(directory);
    probe_writing(directory / "performance_summary.json");
  }
  write_text_file(std::filesystem::path(options.output_dir) / "config.json", to_json(options));
}

void load_start(Trainer& trainer) {
  const TrainOptions& options = trainer.options();
  if (!options.resume.empty()) trainer.resume(options.resume);
  if (!options.init_from.empty())
    read_hf_parameters(options.init_from, options.model(), trainer.graph(), trainer.executor());
}

// The steps of a run and what is due between them.
class Run {
 public:
  Run(Trainer& trainer, Terminal& terminal, ProfilingSession& profiling, LastWords& last_words)
      : trainer_(trainer),
        options_(trainer.options()),
        terminal_(terminal),
        profiling_(profiling),
        last_words_(last_words) {
    if (ranges_) trainer.executor().observe(*ranges_);
  }
  ~Run() {
    if (ranges_) trainer_.executor().forget(*ranges_);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // A device that fails ends the run; fault() has what it said.
  RunRecord finish() {
    const auto start = Clock::now();
    try {
      take_steps(start);
      if (record_.outcome != Outcome::diverged) last_words_.attempt([this] { save(); });
    } catch (const OutOfMemoryError& error) {
      give_up(error);
    } catch (const DeviceError& error) {
      give_up(error);
    }
    record_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    record_.tensor_allocations = trainer_.executor().memory().allocations;
    record_.peak_resident_bytes = peak_resident_bytes();
    return std::move(record_);
  }

  std::exception_ptr fault() const { return fault_; }

 private:
  void take_steps(Clock::time_point start) {
    while (record_.outcome == Outcome::completed && trainer_.steps_done() < options_.num_steps) {
      if (interrupt_noted() != 0 && trainer_.steps_in_flight() == 0) {
        record_.outcome = Outcome::interrupted;
        return;
      }
      step();
      show_progress(start);
    }
  }

  // What is on the device is lost, or in the middle of a step; what was saved before stays.
  template <class Fault>
  void give_up(const Fault& fault) {
    record_.outcome = Outcome::failed;
    const std::string rest =
        written_step_ > 0
            ? fmt::format("the checkpoint of step {} is intact: go on with --resume {}",
                          written_step_, checkpoint_path(options_).string())
        : options_.resume.empty()
            ? std::string("nothing was saved: --save-every makes checkpoints")
            : fmt::format("nothing was saved since {}, which is intact", options_.resume);
    fault_ = std::make_exception_ptr(Fault("{}; {}", fault.what(), rest));
  }

  bool due(std::int64_t interval) const { return due(interval, trainer_.steps_done()); }
  static bool due(std::int64_t interval, std::int64_t step) {
    return interval > 0 && step % interval == 0;
  }
  bool is_last() const { return trainer_.steps_done() == options_.num_steps; }

  void step() {
    trainer_.executor().reset_peak_memory();
    profiling_.before_step();
    if (trainer_.steps_in_flight() == 0) begin_step();
    if (may_run_ahead()) begin_step();
    const StepReport report = trainer_.finish_step();
    profiling_.after_step(report);
    const std::size_t peak = trainer_.executor().memory().peak_live;
    note_peak();
    const bool is_first = record_.steps.empty();
    record_.steps.push_back(report);
    if (!std::isfinite(report.loss) || overflows_at_any_scale(report))
      record_.outcome = Outcome::diverged;
    if (const std::string line = loss_scale_line(report); !line.empty()) terminal_.line(line);
    if (is_first || is_last() || due(options_.log_interval) ||
        record_.outcome != Outcome::completed)
      terminal_.line(step_line(options_, report, peak));
    if (record_.outcome == Outcome::diverged) return;
    if (options_.eval_every > 0 && (due(options_.eval_every) || is_last())) evaluate();
    if (due(options_.save_every) && !is_last()) save();  // finish() saves the last
  }

  void begin_step() {
    if (ranges_) ranges_->begin_step(trainer_.steps_done() + trainer_.steps_in_flight() + 1);
    trainer_.begin_step();
    if (ranges_) ranges_->end_step();
  }

  // Gradients that do not fit when they are a millionth of what they are will not if they are less.
  static bool overflows_at_any_scale(const StepReport& report) {
    return report.skipped && *report.loss_scale < 1e-6;
  }

  // Whether the step after the one in flight may begin before that one is finished: a device that
  // works while the host waits need not stand still between them. Nothing may be due between the
  // two that looks at the model.
  bool may_run_ahead() const {
    const std::int64_t step = trainer_.steps_done() + 1;
    return trainer_.executor().device().asynchronous() && !options_.profiling() &&
           step < options_.num_steps && interrupt_noted() == 0 && !due(options_.eval_every, step) &&
           !due(options_.save_every, step);
  }

  void evaluate() {
    record_.validation.push_back({trainer_.steps_done(), trainer_.evaluate(options_.eval_batches)});
    note_peak();
    terminal_.line(validation_line(record_.validation.back()));
  }

  // Unless the last step has been saved already, or none was to be.
  void save() {
    if (options_.save_every == 0 || record_.steps.empty()) return;
    if (saved_step_ == trainer_.steps_done()) return;
    saved_step_ = trainer_.steps_done();
    trainer_.save(checkpoint_path(options_));
    written_step_ = saved_step_;
    terminal_.line(
        fmt::format("Saved {} at step {}", checkpoint_path(options_).string(), saved_step_));
  }

  void note_peak() {
    record_.peak_tensor_bytes =
        std::max(record_.peak_tensor_bytes, trainer_.executor().memory().peak_live);
  }

  void show_progress(Clock::time_point start) {
    if (is_last()) return;
    const double elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    const auto left = static_cast<double>(options_.num_steps - trainer_.steps_done());
    terminal_.progress(trainer_.steps_done(), options_.num_steps,
                       elapsed / static_cast<double>(record_.steps.size()) * left);
  }

  Trainer& trainer_;
  const TrainOptions& options_;
  Terminal& terminal_;
  RunRecord record_;
  ProfilingSession& profiling_;
  LastWords& last_words_;
  std::unique_ptr<OutsideRanges> ranges_ = OutsideRanges::open();
  std::int64_t saved_step_ = 0, written_step_ = 0;  // the last to be saved; the last that was
  std::exception_ptr fault_;
};

void print_tuning(Terminal& terminal, const Autotuner& tuner) {
  for (const std::string& warning : tuner.warnings()) terminal.line(warning);
  terminal.line(fmt::format("Products tuned: {} by timing, {} as they were before ({})",
                            tuner.searched(), tuner.cached(), tuning_cache_text()));
  for (const auto& [work, choice] : tuner.told())
    terminal.line(fmt::format("Fastest {}: {}", work, choice));
}

void print_start(Terminal& terminal, Trainer& trainer, const StepCost& cost, double seconds) {
  const TrainOptions& options = trainer.options();
  print_header(terminal, options, trainer.data().description(), trainer.executor().device());
  if (options.reports_flops()) print_flops(terminal, cost);
  terminal.line("");
  terminal.line(fmt::format("Model and optimizer initialized in {}", format_duration(seconds)));
  if (!options.resume.empty())
    terminal.line(fmt::format("Resumed from {} at step {}", options.resume, trainer.steps_done()));
  if (!options.init_from.empty())
    terminal.line(fmt::format("Weights read from {}", options.init_from));
  if (trainer.tuner()) print_tuning(terminal, *trainer.tuner());
  for (const std::string& warning : trainer.executor().device().warnings()) terminal.line(warning);
  terminal.line("");
  terminal.line("Starting training...");
}

void report(Terminal& terminal, Trainer& trainer, const RunRecord& record, LastWords& last_words) {
  const TrainOptions& options = trainer.options();
  const PerformanceSummary summary = summarize(options, record);
  print_summary(terminal, options, record, summary);
  const std::string json = performance_json(
      options, record, summary, system_info(trainer.executor().device(), options), utc_timestamp());
  for (const std::filesystem::path& directory : report_directories(options))
    last_words.attempt([&] {
      write_text_file(directory / "performance_summary.json", json);
      terminal.line(fmt::format("Wrote {}", (directory / "performance_summary.json").string()));
    });
}

// The summary of a run that diverged is written all the same: its losses show how it went. A
// checkpoint is not, for its weights are spoilt; the last one before stays.
[[noreturn]] void refuse_divergence(const RunRecord& record) {
  if (record.steps.back().skipped && std::isfinite(record.steps.back().loss))
    throw Error(
        "gradients overflow at step {} whatever the loss scale: training has diverged; try a "
        "smaller --learning-rate, or --dtype bf16",
        record.steps.back().step);
  throw Error(
      "the loss is {} at step {}: training has diverged; try a smaller --learning-rate, "
      "--lr-warmup-steps 100 or --max-grad-norm 1",
      format_loss(record.steps.back().loss), record.steps.back().step);
}

int run(const TrainOptions& options, Device& device, const TrainerHooks& hooks) {
  Terminal terminal;
  const auto start = Clock::now();
  terminal.busy(fmt::format("Initializing {} parameters...",
                            format_count(options.model().parameter_count())));
  TrainerHooks all = hooks;
  all.tuning = [&](std::string_view product, int number) {
    terminal.busy(fmt::format("Timing product {}: {}", number, product));
  };
  Trainer trainer(options, device, all);
  load_start(trainer);
  prepare_directories(options);
  const StepCost cost = cost_of_step(trainer.graph(), options.gradient_accumulation_steps);
  note_interrupts();
  print_start(terminal, trainer, cost, std::chrono::duration<double>(Clock::now() - start).count());
  if (trainer.steps_done() >= options.num_steps) {
    terminal.line(fmt::format("Nothing is left to do: --num-steps is {}", options.num_steps));
    return 0;
  }

  ProfilingSession profiling(trainer, terminal);
  LastWords last_words;
  Run steps(trainer, terminal, profiling, last_words);
  RunRecord record = steps.finish();
  record.cost = cost;
  if (record.outcome == Outcome::interrupted) terminal.line("Interrupted");
  if (record.outcome == Outcome::failed) terminal.line("The device failed");
  report(terminal, trainer, record, last_words);
  if (steps.fault()) std::rethrow_exception(steps.fault());
  last_words.attempt([&] { profiling.finish(terminal); });
  if (record.outcome == Outcome::diverged) refuse_divergence(record);
  last_words.throw_fault();
  return record.outcome == Outcome::interrupted ? 128 + interrupt_noted() : 0;
}

}  // namespace

int train(const TrainOptions& options, Device& device, const TrainerHooks& hooks) {
  try {
    return run(options, device, hooks);
  } catch (const OutOfMemoryError& error) {  // by now the device has all memory back
    throw OutOfMemoryError("{}", with_batch_advice(error.what(), options, device));
  }
}

namespace {

std::string footer(std::string_view command) {
  return fmt::format(R"(Examples:
  {0} --batch-size 8 --seq-len 128 --num-steps 20
  {0} --data book.txt --num-steps 500 --learning-rate 1e-3 --eval-every 100
  {0} --num-steps 1000 --save-every 100 --output-dir run1
  {0} --resume run1/checkpoint.safetensors --num-steps 2000
  {0} --hidden-dim 512 --n-layers 8 --dtype bf16 --flops
A flag may be written with underscores; --config takes the same names as keys.)",
                     command);
}

void configure(CLI::App& command, std::string_view name, const char* version, Action& action) {
  const auto request = std::make_shared<Request>(command, version);
  command
      .add_flag("--print-config", request->print_config,
                "Print the options as they would be used, and stop")
      ->group("Output");
  command.footer(footer(name));
  command.callback([request, &action] {
    action = [request] {
      const TrainOptions options = request->training.options();
      if (!request->print_config) return train(options, *open_device(options));
      const std::string json = to_json(options);
      Terminal().line(std::string_view(json).substr(0, json.size() - 1));
      return 0;
    };
  });
}

}  // namespace

void add_train_command(CLI::App& program, Action& action) {
  configure(*program.add_subcommand("train", "Train the model"), "ridge train", "", action);
}

void configure_as_train(CLI::App& program, const char* version, Action& action) {
  configure(program, program.get_name(), version, action);
}

}  // namespace ridge
