#include "ridge/report/profiled_run.h"

#include <fmt/format.h>

#include <exception>
#include <memory>

#include "ridge/analyze/machine_file.h"
#include "ridge/analyze/plan.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view summary_name = "performance_summary.json";

void write_summaries(const RunPlan& plan, const Record& record, const Summary& summary,
                     RunListener& listener, LastWords& last_words) {
  if (plan.summary_dirs.empty()) return;
  const std::string json = record_json(record, summary);
  for (const fs::path& directory : plan.summary_dirs)
    last_words.attempt([&] {
      write_text_file(directory / summary_name, json);
      listener.wrote(directory / summary_name);
    });
}

// Whether anything was recorded. A device that failed may have taken it along.
bool finish(StepRecorder& recorder, bool failed, RunListener& listener) {
  try {
    if (recorder.finish()) return true;
  } catch (const DeviceError&) {
    if (!failed) throw;
    return false;
  }
  const StepRecorder::Config& config = recorder.config();
  listener.say(fmt::format("Nothing was profiled: the run ended before {}",
                           config.name_of_step(config.window.first)));
  return false;
}

// Of a device that failed no kernel can be asked for: what would help is not known then.
void write_profile_of(StepRecorder& recorder, Session& session, const Record& record,
                      const RunPlan& plan, RunListener& listener) {
  const bool failed = record.outcome == Outcome::failed;
  if (!finish(recorder, failed, listener)) return;
  const RunOptions& options = record.options;
  ProfileContent content{.recorder = recorder,
                         .session = session,
                         .record = record,
                         .bottlenecks = {},
                         .communication = {},
                         .ranks = {},
                         .group_by = group_by_named(options.group_by),
                         .sort_by = sort_by_named(options.sort_by),
                         .compress_traces = options.compress_traces};
  if (Communicator* const others = session.device().communicator(); others && !failed) {
    content.communication = communication_report(recorder.on_device());
    if (content.communication)
      content.ranks = compare_ranks(*content.communication, record.peak_tensor_bytes, *others);
  }
  const bool keeps = !plan.profile_dir.empty();
  if (keeps && !failed) {
    listener.busy("Analyzing the profile...");
    if (const auto roof = roof_of_session(session, listener))
      content.bottlenecks = analyze_bottlenecks(
          recorder.on_device(), *roof, alternatives_of(options, session.device(), session.graph()));
  }
  listener.analyzed(content);
  if (!keeps) return;
  listener.busy("Writing the profile...");
  listener.wrote_profile(write_profile(plan.profile_dir, content,
                                       [&](const std::string& line) { listener.say(line); }));
}

}  // namespace

RunPlan run_plan(const RunOptions& options) {
  const fs::path output = options.output_dir;
  RunPlan plan{
      .loop = {.last_step = options.num_steps, .checkpoint = output / "checkpoint.safetensors"},
      .recording = recorder_config(options),
      .summary_dirs = {output}};
  if (plan.recording) {
    plan.profile_dir = options.profile_dir;
    plan.summary_dirs.push_back(plan.profile_dir);
  }
  return plan;
}

void leave_profile_of_rank(RunPlan& plan, int rank) {
  plan.summary_dirs.clear();
  if (plan.profile_dir.empty()) return;
  plan.profile_dir /= fmt::format("rank-{}", rank);
  plan.summary_dirs.push_back(plan.profile_dir);
}

void prepare_directories(const RunPlan& plan) {
  for (const fs::path& directory : plan.summary_dirs) {
    make_directories(directory);
    remove_abandoned_files(directory);
    probe_writing(directory / summary_name);
  }
}

Record run_profiled(Session& session, const RunPlan& plan, RunListener& listener) {
  prepare_directories(plan);
  std::unique_ptr<StepRecorder> recorder;
  // The recorder hears of a step before the listener does, whose time is not to be recorded.
  std::vector<LoopObserver*> observers;
  if (plan.recording) {
    recorder = std::make_unique<StepRecorder>(session, *plan.recording);
    if (const std::string fault = recorder->counters_fault();
        !fault.empty() && !session.device().is_gpu())
      listener.say(fault);
    observers.push_back(recorder.get());
  }
  observers.push_back(&listener);
  LastWords last_words;
  Loop loop(session, plan.loop, observers, last_words);
  Record record = loop.run();
  record.by_device = plan.by_device;
  if (const Device& device = session.device();
      const auto roof = kept_roof(device.name(), device.hardware(), device.threads()).roof) {
    const LeastTime least =
        least_time_of_step(session.graph(), roof_for(*roof, session.schedule()), session.schedule(),
                           session.options().batches_per_step());
    record.least_step_seconds = least.computing + least.moving;  // without what launches add
  }
  const Summary summary = summarize(record);
  last_words.attempt([&] {
    if (record.outcome == Outcome::interrupted) listener.say("Interrupted");
    if (record.outcome == Outcome::failed) listener.say("The device failed");
    listener.ended(session, record, summary, last_words);
  });
  write_summaries(plan, record, summary, listener, last_words);
  if (recorder)
    last_words.attempt([&] { write_profile_of(*recorder, session, record, plan, listener); });
  last_words.attempt([&] { listener.finished(record, summary, last_words); });
  if (loop.fault()) std::rethrow_exception(loop.fault());
  last_words.throw_fault();
  return record;
}

std::optional<Roof> roof_of_session(Session& session, RunListener& listener) {
  KeptRoof found = roof_of_device(session.device(), [&] {
    listener.busy(fmt::format("Measuring the ceilings of {}...", session.device().description()));
  });
  if (!found.roof) {
    listener.say(fmt::format("No ceilings to compare with: {}", found.source));
    return std::nullopt;
  }
  return roof_for(*std::move(found.roof), session.schedule());
}

}  // namespace ridge
