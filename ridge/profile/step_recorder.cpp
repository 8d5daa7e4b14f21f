#include "ridge/profile/step_recorder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/base/statistics.h"
#include "ridge/base/units.h"
#include "ridge/session/devices.h"

namespace ridge {

namespace {

constexpr std::int64_t usual_steps = 5;

// So many steps up to the last that is wanted, none of them before the earliest.
ProfileWindow window_up_to(std::int64_t last, std::int64_t count, std::int64_t earliest) {
  return {std::max(earliest, last - count + 1), last};
}

// A window no longer than before that has a step.
ProfileWindow moved_to(std::int64_t step, const ProfileWindow& window) {
  const std::int64_t more = window.last - window.first;
  if (step < window.first) return {step, step + more};
  if (step > window.last) return {step - more, step};
  return window;
}

bool wants_counters(const RunOptions& o) { return o.counters || o.enable_all_profiling; }

// The last step to record. Steps for a GPU to count in are left after it, as far as it stays as
// late as `earliest`; a CPU counts in the steps that are recorded.
std::int64_t last_to_record(const RunOptions& o, std::int64_t last, std::int64_t earliest) {
  if (!wants_counters(o)) return last;
  const bool on_gpu = o.device == gpu_name() || (o.device == "auto" && has_gpu());
  return on_gpu ? std::max(earliest, last - steps_to_count_in()) : last;
}

StepRecorder::Config config_of(const RunOptions& o, const ProfileWindow& window) {
  StepRecorder::Config config{
      .window = window, .counters = wants_counters(o), .warmup_steps = o.warmup_steps};
  if (o.reports_system())
    config.system_interval = std::chrono::milliseconds(o.profile_system_interval);
  return config;
}

}  // namespace

ProfileWindow profile_window(const RunOptions& o) {
  if (!o.profiling()) return {};
  const std::int64_t step = std::min(o.flops_profile_step, o.num_steps);
  const bool asks_flops = o.enable_deepspeed_flops && step > 0;
  const bool asks_more =
      o.enable_pytorch_profiler || o.reports_memory() || o.profile_operators || o.profile_system;
  if (asks_flops && !asks_more) return {step, step};
  const std::int64_t more = o.profile_steps > 0 ? o.profile_steps : usual_steps;
  const std::int64_t earliest =
      std::max<std::int64_t>(1, std::min(o.warmup_steps + 1, o.num_steps));
  const std::int64_t last = std::min(5 + more, last_to_record(o, o.num_steps, earliest));
  const ProfileWindow window = window_up_to(last, more + 1, std::min(earliest, last));
  return asks_flops ? moved_to(step, window) : window;
}

std::optional<StepRecorder::Config> recorder_config(const RunOptions& o) {
  if (!o.profiling()) return std::nullopt;
  return config_of(o, profile_window(o));
}

std::optional<StepRecorder::Config> recorder_config(const RunOptions& o,
                                                    const BenchmarkRecording& asked) {
  const bool asks_more = asked.operators || o.profiling();
  if (!asks_more && !asked.flops_iteration) return std::nullopt;
  const std::int64_t offset = o.warmup_steps + 1;  // of the number of a step to its iteration's
  const std::int64_t count = o.profile_steps > 0 ? o.profile_steps : usual_steps;
  const std::int64_t earliest = o.num_steps / 2 + offset,
                     last = last_to_record(o, o.num_steps - 1 + offset, earliest);
  ProfileWindow window = window_up_to(last, count, earliest);
  if (asked.flops_iteration) {
    const std::int64_t step = *asked.flops_iteration + offset;
    window = asks_more ? moved_to(step, window) : ProfileWindow{step, step};
  }
  StepRecorder::Config config = config_of(o, window);
  config.label_offset = offset;
  return config;
}

std::string StepRecorder::Config::name_of_step(std::int64_t step) const {
  return fmt::format("{} {}", label_offset > 0 ? "iteration" : "step", step - label_offset);
}

StepRecorder::StepRecorder(Session& session, const Config& config)
    : session_(session), config_(config) {
  // A device that cannot be traced is to say so now, not after the steps before the window.
  if (Tracer* const tracer = session.device().tools().tracer()) {
    tracer->start();
    tracer->stop();
  }
  if (!config.counters) return;
  try {
    if (session.device().is_gpu())
      device_counters_ = DeviceCounters::of(session.executor());
    else
      counters_ = std::make_unique<HardwareCounters>();
  } catch (const DeviceError& error) {
    counters_fault_ = error.what();  // the rest of the profile is worth having without
  }
}

void StepRecorder::start() {
  recorder_.attach(session_.executor());
  if (counters_) counters_->attach(session_.executor());
  recording_ = true;
  card_ = std::make_unique<CardWatch>(session_.device());
}

void StepRecorder::stop() {
  recorder_.add_card(card_->stop());
  card_.reset();
  recorder_.detach(session_.executor());
  if (counters_) counters_->detach(session_.executor());
  recording_ = false;
}

bool StepRecorder::counting(std::int64_t step) const {
  return device_counters_ && step > config_.window.last && !device_counters_->done();
}

void StepRecorder::before_step(Session& session, std::int64_t step) {
  if (config_.system_interval && !sampler_)
    sampler_ = std::make_unique<SystemSampler>(
        SystemSampler::Config{.interval = *config_.system_interval,
                              .family = session.device().ranks() > 1 ? ::getppid() : ::getpid()});
  if (sampler_) sampled_steps_.push_back({step - config_.label_offset, SystemSampler::now_ns(), 0});
  if (!recording_ && config_.window.contains(step)) start();
  if (recording_)
    recorder_.begin_step(step - config_.label_offset);
  else if (counting(step))
    device_counters_->begin_step(session.executor());
}

void StepRecorder::after_step(Session& session, const StepReport& report, std::size_t,
                              Record& record) {
  steps_.push_back(report);
  if (!sampled_steps_.empty()) sampled_steps_.back().end_ns = SystemSampler::now_ns();
  if (recording_) {
    recorder_.end_step(report.loss);
    record.recorded.push_back(record.steps.size() - 1);
    if (report.step >= config_.window.last) stop();
  } else if (counting(report.step)) {
    device_counters_->end_step(session.executor());
    record.recorded.push_back(record.steps.size() - 1);
  } else if (std::ssize(record.steps) > config_.warmup_steps) {
    recorder_.recording().unrecorded_step_seconds.push_back(report.seconds);
  }
}

void StepRecorder::keep_system_samples() {
  if (!sampler_) return;
  SystemSamples samples = sampler_->stop();
  sampler_.reset();
  std::erase_if(sampled_steps_, [](const auto& step) { return step.end_ns == 0; });
  samples.steps = std::move(sampled_steps_);
  recorder_.add_system(std::move(samples));
}

bool StepRecorder::finish() {
  if (recording_) stop();
  keep_system_samples();
  if (host().steps.empty()) return false;
  if (!host().activities.empty()) device_time_ = device_time(host());
  return true;
}

const DeviceCounters* StepRecorder::counted_device() const {
  return device_counters_ && device_counters_->done() ? device_counters_.get() : nullptr;
}

std::optional<DeviceCounterReport> StepRecorder::device_counters() const {
  if (!counted_device()) return std::nullopt;
  return report_device_counters(on_device(), device_counters_->metrics(),
                                device_counters_->ranges(), device_counters_->passes());
}

std::string StepRecorder::counters_fault() const {
  if (device_counters_ && !device_counters_->done())
    return fmt::format("No hardware counters: they take {} steps after step {}; run more steps",
                       device_counters_->passes(), config_.window.last);
  return counters_fault_;
}

std::optional<RecordingOverhead> recording_overhead(const Recording& recording) {
  std::vector<double> recorded;
  for (const Recording::Step& step : recording.steps)
    recorded.push_back(static_cast<double>(step.end_ns - step.begin_ns) * 1e-9);
  const std::vector<double>& others = recording.unrecorded_step_seconds;
  if (recorded.empty() || others.empty()) return std::nullopt;
  return RecordingOverhead{.ratio = ratio_of_medians(recorded, others),
                           .recorded_seconds = percentile(recorded, 0.5),
                           .other_seconds = percentile(others, 0.5),
                           .recorded = recorded.size(),
                           .others = others.size()};
}

std::string overhead_text(const Recording& recording) {
  const auto overhead = recording_overhead(recording);
  if (!overhead)
    return "Overhead of recording: not known, because no warm step ran without it; run more steps";
  const std::string medians =
      fmt::format("{} over {} recorded steps, {} over {} others; medians",
                  format_duration(overhead->recorded_seconds), overhead->recorded,
                  format_duration(overhead->other_seconds), overhead->others);
  const auto& interval = overhead->ratio.interval;
  if (!interval)  // which of so few steps happened to be slow decides even the sign
    return fmt::format("Overhead of recording: not known: too few steps for an interval ({})",
                       medians);
  const auto percent = [](double ratio) { return 100 * (ratio - 1); };
  return fmt::format(
      "Overhead of recording: {:+.1f} %, with 95 % between {:+.1f} and {:+.1f} %{} ({})",
      percent(overhead->ratio.value), percent(interval->low), percent(interval->high),
      interval->low < 1 && interval->high > 1 ? ": not to be told from none" : "", medians);
}

}  // namespace ridge
