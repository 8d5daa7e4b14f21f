#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridge/profile/card_watch.h"
#include "ridge/profile/counters.h"
#include "ridge/profile/device_counters.h"
#include "ridge/profile/recorder.h"
#include "ridge/profile/system_sampler.h"
#include "ridge/session/loop.h"

namespace ridge {

// The steps of a run that are recorded, by their numbers.
struct ProfileWindow {
  std::int64_t first = 1, last = 0;
  bool contains(std::int64_t step) const { return first <= step && step <= last; }
};

// The window that the options of a training run ask for: steps 5 to 10, as the workshop has it, or
// 5 to 5 + --profile-steps; --flops-profile-step alone if that is all that was asked for, else a
// window that has it. A shorter run is recorded at its end, without the steps that warm up unless
// there are no others. Empty if nothing was asked for.
ProfileWindow profile_window(const RunOptions& options);

// Records the steps of a window while a loop runs, and reads hardware counters if asked to: a CPU's
// in the same steps, a GPU's in those after the window, because counting changes how long nodes
// take. What the machine does is sampled beside all steps.
class StepRecorder final : public LoopObserver {
 public:
  struct Config {
    ProfileWindow window;
    bool counters = false;
    // What recordings number a step less: a benchmark counts its iterations from 0, after those
    // that warm up.
    std::int64_t label_offset = 0;
    std::int64_t warmup_steps = 0;  // which say nothing of what recording costs
    // How often the machine is sampled beside all steps; none: never.
    std::optional<std::chrono::milliseconds> system_interval;

    // What people call a step that has this number: "step 4", "iteration 0".
    std::string name_of_step(std::int64_t step) const;
  };

  // DeviceError, before anything runs, if the device cannot be traced.
  StepRecorder(Session& session, const Config& config);

  bool wants_single_steps() const override { return true; }
  void before_step(Session& session, std::int64_t step) override;
  void after_step(Session& session, const StepReport& report, std::size_t peak_bytes,
                  Record& record) override;
  // After the last step. False if the run ended before anything was recorded. DeviceError if the
  // device failed and took what it had recorded with it.
  bool finish();

  const Config& config() const { return config_; }
  // On the clock of the host; and of the device, if it has one of its own.
  const Recording& host() const { return recorder_.recording(); }
  const Recording& on_device() const { return device_time_ ? *device_time_ : host(); }
  const std::vector<StepReport>& steps() const { return steps_; }

  // The processor's counters; null if not asked for, unavailable, or for another device.
  const HardwareCounters* counters() const { return counters_.get(); }
  // The GPU's counters; none if not asked for, unavailable, or if the run was too short.
  std::optional<DeviceCounterReport> device_counters() const;
  // The same node by node; null where there is no report.
  const DeviceCounters* counted_device() const;
  // Why there are no counters though they were asked for; empty otherwise.
  std::string counters_fault() const;

 private:
  void start();
  void stop();
  bool counting(std::int64_t step) const;
  void keep_system_samples();

  Session& session_;
  Config config_;
  Recorder recorder_;
  std::optional<Recording> device_time_;
  std::unique_ptr<HardwareCounters> counters_;
  std::unique_ptr<DeviceCounters> device_counters_;
  std::unique_ptr<CardWatch> card_;                 // while recording
  std::unique_ptr<SystemSampler> sampler_;          // from the first step to the last
  std::vector<SystemSamples::Step> sampled_steps_;  // on the sampler's clock
  std::vector<StepReport> steps_;
  std::string counters_fault_;
  bool recording_ = false;
};

// What the options of a training run ask for; nothing if they ask for no profile.
std::optional<StepRecorder::Config> recorder_config(const RunOptions& options);

// What is asked of a benchmark, beside its options.
struct BenchmarkRecording {
  bool operators = false;                       // tables or a trace
  std::optional<std::int64_t> flops_iteration;  // the FLOPs of this one, numbered as it is printed
};
// The last iterations are recorded, at most half of them, so that the others say what that costs;
// the one whose FLOPs are asked for is among them, or alone if nothing else is asked for.
std::optional<StepRecorder::Config> recorder_config(const RunOptions& options,
                                                    const BenchmarkRecording& asked);

// What recording costs: the median step recorded over the median step of the same run that was not,
// with its 95 % interval. Nothing if one of the two is missing.
struct RecordingOverhead {
  Ratio ratio;
  double recorded_seconds = 0, other_seconds = 0;  // medians
  std::size_t recorded = 0, others = 0;
};
std::optional<RecordingOverhead> recording_overhead(const Recording& recording);
std::string overhead_text(const Recording& recording);

}  // namespace ridge
