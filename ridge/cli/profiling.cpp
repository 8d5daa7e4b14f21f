#include "ridge/cli/profiling.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ridge/analyze/bottlenecks.h"
#include "ridge/analyze/machine_file.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/statistics.h"
#include "ridge/base/units.h"
#include "ridge/cli/system.h"
#include "ridge/profile/chrome_trace.h"
#include "ridge/profile/device_report.h"
#include "ridge/profile/flops_report.h"
#include "ridge/profile/kernel_stats.h"
#include "ridge/profile/memory_plot.h"
#include "ridge/profile/memory_report.h"
#include "ridge/profile/memory_timeline.h"
#include "ridge/profile/operator_table.h"
#include "ridge/profile/perfetto.h"
#include "ridge/profile/scalars.h"
#include "ridge/profile/tensorboard.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// Against the ceilings of the machine file, if it has them; the profile is worth having without.
std::optional<BottleneckReport> bottlenecks_of(const Recording& recording,
                                               const TrainOptions& options) {
  std::optional<Roof> roof =
      kept_roof(recording.device, recording.hardware, recording.threads).roof;
  if (!roof) return std::nullopt;
  roof->tf32 = options.dtype == "tf32";
  roof->in_pieces = options.schedule().has(products_in_pieces);
  return analyze_bottlenecks(recording, *roof);
}

// The files that are written into a profile directory. The system may refuse one, as a full disk
// does a large one, and take the others.
class ProfileFiles {
 public:
  ProfileFiles(fs::path directory, Terminal& terminal)
      : directory_(std::move(directory)), terminal_(terminal) {}

  // `write` writes a file of the directory and returns its name.
  template <class Write>
  void add(const Write& write) {
    try {
      written_.push_back(write());
    } catch (const IoError& error) {
      refused_.emplace_back(error.what());
    }
  }
  template <class Write>
  void add(const std::string& name, const Write& write) {
    add([&] {
      write(directory_ / name);
      return name;
    });
  }

  void say_cut(const fs::path& path, std::uint64_t left_out, std::string_view bound) {
    if (left_out > 0)
      terminal_.line(fmt::format("{}: {} events left out beyond {}", path.filename().string(),
                                 format_count(static_cast<std::int64_t>(left_out)), bound));
  }

  // Says what there is, then throws if that is not all.
  void list() {
    terminal_.line("");
    if (refused_.empty()) terminal_.line("Profiling complete!");
    terminal_.line("Profile files generated:");
    for (const std::string& name : written_)
      terminal_.line(fmt::format("  - {}", (directory_ / name).string()));
    terminal_.line(fmt::format("ridge report {} draws it", directory_.string()));
    if (refused_.size() == 1) throw IoError("{}", refused_.front());
    if (!refused_.empty())
      throw IoError("{}; {} files of the profile are missing", refused_.front(), refused_.size());
  }

 private:
  fs::path directory_;
  Terminal& terminal_;
  std::vector<std::string> written_, refused_;
};

// `recording` on the executor's clock.
void write_traces(ProfileFiles& files, const Recording& recording, bool compress) {
  const std::string end = compress ? ".gz" : "";
  fs::path trace;
  files.add(step_trace_name(recording.steps.front().step, recording.steps.back().step) + end,
            [&](const fs::path& path) {
              const TraceSize size = write_chrome_trace(path, recording);
              files.say_cut(path, size.left_out, format_bytes(size.bytes));
              trace = path;
            });
  // TensorBoard's profiler asks for a name of its own.
  if (!trace.empty())
    files.add(
        worker_trace_name(host_name(), recording.process_id, recording.epoch_ns / 1'000'000) + end,
        [&](const fs::path& path) { duplicate_file(trace, path); });
  files.add("trace.pftrace", [&](const fs::path& path) {
    const TraceSize size = write_perfetto(path, recording);
    files.say_cut(path, size.left_out, format_bytes(size.bytes));
  });
}

std::string write_events(const fs::path& directory, const TrainOptions& options,
                         const Recording& recording, const std::vector<StepReport>& steps,
                         const std::optional<BottleneckReport>& bottlenecks) {
  double time = static_cast<double>(recording.epoch_ns) * 1e-9;
  EventFile events(directory, host_name(), time);
  std::optional<double> compute_floor;
  if (bottlenecks) compute_floor = bottlenecks->all.compute_floor;
  const std::vector<StepMemory> memory = memory_by_step(recording);
  const std::int64_t tokens =
      options.batch_size * options.seq_len * options.gradient_accumulation_steps;
  for (const StepReport& step : steps) {
    time += step.seconds;
    const auto of_step = std::ranges::find(memory, step.step, &StepMemory::step);
    events.add(step.step, time,
               training_scalars(step, tokens, of_step == memory.end() ? nullptr : &*of_step,
                                compute_floor));
  }
  events.sync();
  return events.path().filename().string();
}

// What recording costs, from the steps of this same run that were not recorded.
std::string overhead_line(const Recording& recording) {
  std::vector<double> recorded;
  for (const Recording::Step& step : recording.steps)
    recorded.push_back(static_cast<double>(step.end_ns - step.begin_ns) * 1e-9);
  const std::vector<double>& plain = recording.unrecorded_step_seconds;
  if (recorded.empty() || plain.empty()) return "Overhead of recording: no step ran without it";
  const double with = percentile(recorded, 0.5), without = percentile(plain, 0.5);
  return fmt::format(
      "Overhead of recording: {:+.1f} % ({} over {} recorded steps, {} over {} others; medians)",
      100 * (with / without - 1), format_duration(with), recorded.size(), format_duration(without),
      plain.size());
}

}  // namespace

ProfileWindow profile_window(const TrainOptions& o) {
  const bool only_flops = o.enable_deepspeed_flops && o.flops_profile_step > 0 &&
                          !o.enable_pytorch_profiler && !o.reports_memory() && !o.profile_operators;
  if (only_flops) {
    const std::int64_t step = std::min(o.flops_profile_step, o.num_steps);
    return {step, step};
  }
  const std::int64_t more = o.profile_steps > 0 ? o.profile_steps : 5;
  const std::int64_t last = std::min(5 + more, o.num_steps);
  return {std::max<std::int64_t>(1, last - more), last};
}

ProfilingSession::ProfilingSession(Trainer& trainer, Terminal& terminal)
    : trainer_(trainer),
      options_(trainer.options()),
      window_(profile_window(options_)),
      group_by_(group_by_named(options_.group_by)),
      sort_by_(sort_by_named(options_.sort_by)) {
  // A device that cannot be traced is to say so now, not after the steps before the window.
  if (Tracer* const tracer = trainer.executor().device().tracer(); tracer && options_.profiling()) {
    tracer->start();
    tracer->stop();
  }
  if (!options_.counters && !options_.enable_all_profiling) return;
  try {
    if (trainer.executor().device().asynchronous())
      device_counters_ = DeviceCounters::of(trainer.executor());
    else
      counters_ = std::make_unique<HardwareCounters>();
  } catch (const DeviceError& error) {
    terminal.line(error.what());  // the rest of the profile is worth having without
  }
}

void ProfilingSession::start_recording() {
  recorder_.attach(trainer_.executor());
  if (counters_) counters_->attach(trainer_.executor());
  recording_ = true;
  card_ = std::make_unique<CardWatch>(trainer_.executor().device());
}

void ProfilingSession::stop_recording() {
  recorder_.add_card(card_->stop());
  card_.reset();
  recorder_.detach(trainer_.executor());
  if (counters_) counters_->detach(trainer_.executor());
  recording_ = false;
}

void ProfilingSession::before_step() {
  if (!options_.profiling()) return;
  const std::int64_t step = trainer_.steps_done() + 1;
  if (!recording_ && window_.contains(step)) start_recording();
  if (recording_)
    recorder_.begin_step(step);
  else if (counting(step))
    device_counters_->begin_step(trainer_.executor());
}

// A GPU counts in the steps after the window: counting changes when nodes run, and how long they
// take.
bool ProfilingSession::counting(std::int64_t step) const {
  return device_counters_ && step > window_.last && !device_counters_->done();
}

void ProfilingSession::after_step(const StepReport& report) {
  if (!options_.profiling()) return;
  steps_.push_back(report);
  if (recording_) {
    recorder_.end_step(report.loss);
    if (report.step >= window_.last) stop_recording();
  } else if (counting(report.step)) {
    device_counters_->end_step(trainer_.executor());
  } else if (report.step > options_.warmup_steps) {
    recorder_.recording().unrecorded_step_seconds.push_back(report.seconds);
  }
}

void ProfilingSession::write_files(Terminal& terminal,
                                   const std::optional<BottleneckReport>& bottlenecks) const {
  const Recording& recording = this->recording();
  const fs::path directory = options_.profile_dir;
  ProfileFiles files(directory, terminal);
  auto write = [&](const std::string& name, const std::string& text) {
    files.add(name, [&](const fs::path& path) { write_text_file(path, text); });
  };
  terminal.busy("Writing the profile...");
  write_traces(files, recorder_.recording(), options_.compress_traces);
  files.add([&] { return write_events(directory, options_, recording, steps_, bottlenecks); });
  const OperatorTable operators = operator_table(recording);
  write("operators.json", operator_table_json(operators));
  write("operators.csv", operators_csv(operators));
  write("nodes.json", nodes_json(recording));
  if (group_by_ != GroupBy::op)
    write(fmt::format("operators_by_{}.json", name_of(group_by_)),
          operator_table_json(operator_table(recording, group_by_, sort_by_)));
  write("modules.json", modules_json(flops_report(recording)));
  write("kernel_stats.csv", kernel_stats_csv(recording));
  files.add("kernel_trace.csv", [&](const fs::path& path) {
    const std::size_t left_out = write_kernel_trace(recording, path);
    files.say_cut(path, left_out, format_count(max_kernel_trace_rows) + " rows");
  });
  write("memory.json", memory_report_json(memory_report(recording)));
  write("memory_timeline.json", memory_timeline_json(recording));
  write("memory_timeline.svg", memory_timeline_svg(recording));
  // What this run does not write must not be left by the one before: readers take the directory for
  // one profile.
  std::error_code ignored;
  if (bottlenecks)
    write("bottlenecks.json", bottleneck_json(*bottlenecks));
  else
    fs::remove(directory / "bottlenecks.json", ignored);
  if (const auto report = device_report(recording))
    write("device.json", device_report_json(recording, *report));
  else
    fs::remove(directory / "device.json", ignored);
  const auto device_counters = device_counter_report();
  if (!counters_ && !device_counters) fs::remove(directory / "counters.json", ignored);
  if (device_counters) write("counters.json", device_counters_json(*device_counters));
  write("config.json", to_json(options_));
  if (fs::exists(directory / "performance_summary.json"))  // written by the run itself
    files.add([] { return std::string("performance_summary.json"); });
  if (counters_)
    write("counters.json", counters_json(report_counters(trainer_.graph(), *counters_)));

  files.list();
}

void ProfilingSession::print_reports(Terminal& terminal,
                                     const std::optional<BottleneckReport>& bottlenecks) const {
  const Recording& recording = this->recording();
  const TrainOptions& o = options_;
  auto print = [&](const std::string& text) {
    terminal.line("");
    terminal.lines(text);
  };
  const bool operators = o.enable_pytorch_profiler || o.profile_operators || o.enable_all_profiling;
  if (operators) print(operator_table_text(operator_table(recording, group_by_, sort_by_)));
  if (o.profile_operators || o.enable_all_profiling)
    print(operator_table_text(operator_table(recording, GroupBy::module)));
  if (o.reports_memory()) {
    print(memory_report_text(memory_report(recording)));
    print(memory_timeline_text(recording));
  }
  if (o.enable_deepspeed_flops || o.enable_all_profiling) {
    std::optional<std::int32_t> step;
    if (o.flops_profile_step >= recording.steps.front().step &&
        o.flops_profile_step <= recording.steps.back().step)
      step = static_cast<std::int32_t>(o.flops_profile_step);
    print(flops_report_text(
        flops_report(recording, step),
        {.model = "Tiny LLaMA", .samples_per_step = o.batch_size * o.gradient_accumulation_steps}));
  }
  if (operators) {
    if (bottlenecks)
      print(bottleneck_text(*bottlenecks));
    else
      print("No bottleneck report: measure this machine's ceilings once with ridge roofline");
  }
  if (const auto report = device_report(recording); report && operators)
    print(device_report_text(recording, *report));
  if (const std::string warning = clock_warning(clock_report(recording.card)); !warning.empty())
    print(warning);
  if (counters_) print(counters_text(report_counters(trainer_.graph(), *counters_)));
  if (const auto report = device_counter_report())
    print(device_counters_text(*report));
  else if (device_counters_)
    print(fmt::format("No hardware counters: they take {} steps after step {}; run more steps",
                      device_counters_->passes(), window_.last));
  print(overhead_line(recording));
}

std::optional<DeviceCounterReport> ProfilingSession::device_counter_report() const {
  if (!device_counters_ || !device_counters_->done()) return std::nullopt;
  return report_device_counters(recording(), device_counters_->metrics(),
                                device_counters_->ranges(), device_counters_->passes());
}

void ProfilingSession::finish(Terminal& terminal) {
  if (!options_.profiling()) return;
  if (recording_) stop_recording();
  if (recorder_.recording().steps.empty()) {
    terminal.line(fmt::format("Nothing was profiled: the run ended before step {}", window_.first));
    return;
  }
  if (!recorder_.recording().activities.empty()) device_time_ = device_time(recorder_.recording());
  const auto bottlenecks = bottlenecks_of(recording(), options_);
  print_reports(terminal, bottlenecks);
  write_files(terminal, bottlenecks);
}

}  // namespace ridge
