#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ridge/analyze/bottlenecks.h"
#include "ridge/cli/card_watch.h"
#include "ridge/cli/terminal.h"
#include "ridge/profile/counters.h"
#include "ridge/profile/device_counters.h"
#include "ridge/profile/operator_table.h"
#include "ridge/profile/recorder.h"
#include "ridge/session/options.h"
#include "ridge/session/trainer.h"

namespace ridge {

// The steps that are recorded: 5 to 10, as the workshop has it, or 5 to 5 + --profile-steps, and
// --flops-profile-step among them. A shorter run is recorded at its end.
struct ProfileWindow {
  std::int64_t first = 0, last = 0;
  bool contains(std::int64_t step) const { return first <= step && step <= last; }
};
ProfileWindow profile_window(const TrainOptions& options);

// The profile of a training run: records the steps of the window, then writes the files of the
// profile directory and prints the reports that were asked for. Does nothing if none was.
class ProfilingSession {
 public:
  // UsageError if the tables that were asked for cannot be made, DeviceError if the device cannot
  // be traced.
  ProfilingSession(Trainer& trainer, Terminal& terminal);

  // Around each step.
  void before_step();
  void after_step(const StepReport& report);

  // After the last step. IoError if a file cannot be written, once all others are.
  void finish(Terminal& terminal);

 private:
  // On the device's clock, if it has one.
  const Recording& recording() const {
    return device_time_ ? *device_time_ : recorder_.recording();
  }
  void start_recording();
  void stop_recording();
  bool counting(std::int64_t step) const;
  std::optional<DeviceCounterReport> device_counter_report() const;
  void write_files(Terminal& terminal, const std::optional<BottleneckReport>& bottlenecks) const;
  void print_reports(Terminal& terminal, const std::optional<BottleneckReport>& bottlenecks) const;

  Trainer& trainer_;
  const TrainOptions& options_;
  ProfileWindow window_;
  GroupBy group_by_;
  SortBy sort_by_;
  Recorder recorder_;
  std::optional<Recording> device_time_;  // once recorded, of a device that runs by itself
  // Null if not asked for, or not to be had: of the processor, and of a GPU.
  std::unique_ptr<HardwareCounters> counters_;
  std::unique_ptr<DeviceCounters> device_counters_;
  std::unique_ptr<CardWatch> card_;  // while recording
  std::vector<StepReport> steps_;
  bool recording_ = false;
};

}  // namespace ridge
