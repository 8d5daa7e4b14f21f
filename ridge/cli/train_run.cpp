#include "ridge/cli/train_run.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <exception>
#include <filesystem>
#include <memory>

#include "ridge/analyze/plan.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/units.h"
#include "ridge/cli/interrupt.h"
#include "ridge/cli/profiling.h"
#include "ridge/cli/run_text.h"
#include "ridge/cli/terminal.h"
#include "ridge/session/loop.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr const char* summary_name = "performance_summary.json";

std::vector<fs::path> report_directories(const RunOptions& options) {
  std::vector<fs::path> directories{options.output_dir};
  if (options.profiling()) directories.emplace_back(options.profile_dir);
  return directories;
}

// Now, not after hours of training, is the time to learn that a directory cannot be written.
void prepare_directories(const RunOptions& options) {
  for (const fs::path& directory : report_directories(options)) {
    make_directories(directory);
    remove_abandoned_files(directory);
    probe_writing(directory / summary_name);
  }
  write_text_file(fs::path(options.output_dir) / "config.json", to_json(options));
}

// Prints the steps as they are done.
class Narrator final : public LoopObserver {
 public:
  Narrator(Terminal& terminal, const RunOptions& options, std::int64_t first_step)
      : terminal_(terminal),
        options_(options),
        window_(profile_window(options)),
        first_(first_step) {}

  void after_step(Session&, const StepReport& report, std::size_t peak, Record& record) override {
    if (const std::string line = loss_scale_line(report); !line.empty()) terminal_.line(line);
    const bool is_first = record.steps.size() == 1, is_last = report.step == options_.num_steps;
    if (is_first || is_last || report.step % options_.log_interval == 0 ||
        record.outcome != Outcome::completed)
      terminal_.line(step_line(options_, report, peak) +
                     (window_.contains(report.step) ? " [PROFILING]" : ""));
    if (!is_last) progress_(report.step - first_, options_.num_steps - first_);
  }
  void evaluated(const Validation& validation) override {
    terminal_.line(validation_line(validation));
  }
  void saved(const fs::path& path, std::int64_t step) override {
    terminal_.line(fmt::format("Saved {} at step {}", path.string(), step));
  }

 private:
  Terminal& terminal_;
  const RunOptions& options_;
  ProfileWindow window_;
  std::int64_t first_;  // steps done when the run began
  std::function<void(std::int64_t, std::int64_t)> progress_ = progress_on(terminal_);
};

void print_start(Terminal& terminal, Session& session, double seconds) {
  const RunOptions& options = session.options();
  print_header(terminal, session);
  if (options.reports_flops())
    print_flops(terminal, cost_of_step(session.graph(), options.gradient_accumulation_steps));
  terminal.line("");
  terminal.line(fmt::format("Model and optimizer initialized in {}", format_duration(seconds)));
  if (!options.resume.empty())
    terminal.line(fmt::format("Resumed from {} at step {}", options.resume, session.steps_done()));
  if (!options.init_from.empty())
    terminal.line(fmt::format("Weights read from {}", options.init_from));
  if (!options.weights.empty()) terminal.line(fmt::format("Weights read from {}", options.weights));
  print_kernel_choices(terminal, session);
  terminal.line("");
  terminal.line("Starting training...");
}

void report(Terminal& terminal, const Record& record, LastWords& last_words) {
  const Summary summary = summarize(record);
  print_summary(terminal, record, summary);
  const std::string json = record_json(record, summary);
  for (const fs::path& directory : report_directories(record.options))
    last_words.attempt([&] {
      write_text_file(directory / summary_name, json);
      terminal.line(fmt::format("Wrote {}", (directory / summary_name).string()));
    });
}

int run(const RunOptions& options, Device& device, const SessionHooks& hooks) {
  Terminal terminal;
  const auto start = Clock::now();
  terminal.busy("Preparing the model...");
  SessionHooks all = hooks;
  all.trying = tuning_on(terminal);
  Session session(options, device, all);
  if (!options.resume.empty()) session.resume(options.resume);
  prepare_directories(options);
  note_interrupts();
  print_start(terminal, session, std::chrono::duration<double>(Clock::now() - start).count());
  if (session.steps_done() >= options.num_steps) {
    terminal.line(fmt::format("Nothing is left to do: --num-steps is {}", options.num_steps));
    return 0;
  }

  Narrator narrator(terminal, session.options(), session.steps_done());
  std::unique_ptr<StepRecorder> recorder;
  // The recorder hears of a step before the narrator does, whose time is not to be recorded.
  std::vector<LoopObserver*> observers;
  if (options.profiling()) {
    recorder = recorder_of(session, recorder_config(options), terminal);
    observers.push_back(recorder.get());
  }
  observers.push_back(&narrator);
  LastWords last_words;
  Loop loop(session,
            {.last_step = options.num_steps,
             .stop = [] { return interrupt_noted() != 0; },
             .checkpoint = fs::path(options.output_dir) / "checkpoint.safetensors"},
            observers, last_words);
  const Record record = loop.run();
  if (record.outcome == Outcome::interrupted) terminal.line("Interrupted");
  if (record.outcome == Outcome::failed) terminal.line("The device failed");
  report(terminal, record, last_words);
  if (loop.fault()) std::rethrow_exception(loop.fault());
  if (recorder) last_words.attempt([&] { finish_profile(*recorder, session, record, terminal); });
  refuse_divergence(record);
  last_words.throw_fault();
  return record.outcome == Outcome::interrupted ? 128 + interrupt_noted() : 0;
}

}  // namespace

int train(const RunOptions& options, Device& device, const SessionHooks& hooks) {
  try {
    return run(options, device, hooks);
  } catch (const OutOfMemoryError& error) {  // by now the device has all memory back
    throw OutOfMemoryError("{}", with_batch_advice(error.what(), options, device));
  }
}

}  // namespace ridge
