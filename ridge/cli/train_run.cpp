#include "ridge/cli/train_run.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "ridge/analyze/plan.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/units.h"
#include "ridge/cli/interrupt.h"
#include "ridge/cli/profiling.h"
#include "ridge/cli/rocm_output.h"
#include "ridge/cli/run_text.h"
#include "ridge/cli/terminal.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// Prints the steps as they are done.
class TrainNarrator final : public TerminalListener {
 public:
  TrainNarrator(Terminal& terminal, const Session& session, RunKeeper& keeper, const RunPlan& plan,
                const std::string& json_file, const RocmProfile& rocm)
      : TerminalListener(terminal),
        session_(session),
        keeper_(keeper),
        json_file_(json_file),
        options_(session.options()),
        rocm_(rocm),
        window_(plan.recording ? plan.recording->window : ProfileWindow{}),
        first_(session.steps_done()) {
    keeper_.begin(session, options_.num_steps);
  }

  void after_step(Session&, const StepReport& report, std::size_t peak, Record& record) override {
    keeper_.step(report, peak);
    if (const std::string line = loss_scale_line(report); !line.empty()) terminal_.line(line);
    const bool is_first = record.steps.size() == 1, is_last = report.step == options_.num_steps;
    if (is_first || is_last || report.step % options_.log_interval == 0 ||
        record.outcome != Outcome::completed)
      terminal_.line(step_line(options_, report, peak) +
                     (window_.contains(report.step) ? " [PROFILING]" : ""));
    if (!is_last) progress_(report.step - first_, options_.num_steps - first_);
  }
  void evaluated(Session& session, const Validation& validation) override {
    terminal_.line(validation_line(session.workload().info, validation));
  }
  void saved(const fs::path& path, std::int64_t step) override {
    terminal_.line(fmt::format("Saved {} at step {}", path.string(), step));
  }
  void ended(Session&, const Record& record, const Summary& summary, LastWords&) override {
    print_summary(terminal_, record, summary);
  }
  void analyzed(const ProfileContent& content) override {
    if (rocm_) write_rocm_files(rocm_, content, *this, terminal_);
    if (options_.profiling()) TerminalListener::analyzed(content);
  }
  void finished(const Record& record, const Summary& summary, LastWords& last_words) override {
    const std::string json = record_json(record, summary);
    if (!json_file_.empty())
      last_words.attempt([&] {
        write_text_file(json_file_, json);
        wrote(json_file_);
      });
    last_words.attempt([&] { keeper_.keep(session_, record, json, terminal_); });
  }

 private:
  const Session& session_;
  RunKeeper& keeper_;
  const std::string& json_file_;
  const RunOptions& options_;
  const RocmProfile& rocm_;
  ProfileWindow window_;
  std::int64_t first_;  // steps done when the run began
  std::function<void(std::int64_t, std::int64_t)> progress_ = progress_on(terminal_);
};

void print_start(Terminal& terminal, Session& session, double seconds) {
  const RunOptions& options = session.options();
  print_header(terminal, session);
  if (options.reports_flops())
    print_flops(terminal,
                cost_of_step(session.graph(), options.batches_per_step() * options.ranks));
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

int run(const RunOptions& options, Device& device, const SessionHooks& hooks,
        const KeepRequest* keep, const std::string& json_file, const RocmProfile& rocm) {
  Terminal terminal;
  if (rocm) begin_rocm_profile(rocm, terminal);
  const bool leads = device.rank() == 0;  // or tells nobody, and leaves only a profile
  RunKeeper keeper(leads ? keep : nullptr, device);
  const auto start = Clock::now();
  terminal.busy("Preparing the model...");
  SessionHooks all = hooks;
  all.trying = tuning_on(terminal);
  Session session(options, device, all);
  if (!options.resume.empty()) session.resume(options.resume);
  RunPlan plan = run_plan(options);
  if (rocm) record_for_rocm(rocm, device, plan);
  plan.loop.stop = [&session] { return session.on_any_rank(interrupt_noted() != 0); };
  if (!leads) leave_profile_of_rank(plan, device.rank());
  prepare_directories(plan);
  if (leads && !json_file.empty()) probe_writing(json_file);
  if (leads) write_text_file(fs::path(options.output_dir) / "config.json", to_json(options));
  note_interrupts();
  print_start(terminal, session, std::chrono::duration<double>(Clock::now() - start).count());
  if (session.steps_done() >= options.num_steps) {
    terminal.line(fmt::format("Nothing is left to do: --num-steps is {}", options.num_steps));
    return 0;
  }
  TrainNarrator narrator(terminal, session, keeper, plan, json_file, rocm);
  const Record record = run_profiled(session, plan, narrator);
  refuse_divergence(record);
  return exit_code_of(record);
}

}  // namespace

int train(const RunOptions& options, Device& device, const SessionHooks& hooks,
          const KeepRequest* keep, const std::string& json_file, const RocmProfile& rocm) {
  try {
    RocmProfile own = rocm;
    if (device.rank() != 0) own.files.clear();
    return run(options, device, hooks, keep, json_file, own);
  } catch (const OutOfMemoryError& error) {  // by now the device has all memory back
    throw OutOfMemoryError("{}", with_batch_advice(error.what(), options, device));
  }
}

}  // namespace ridge
