#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ridge/profile/recording.h"
#include "ridge/run/executor.h"
#include "ridge/run/observer.h"

namespace ridge {

// How many steps behind those that are recorded are left for a GPU to count in: no fewer than the
// passes that it takes.
std::int64_t steps_to_count_in();

// What a device counts in hardware around each node of some steps, which its nodes are launched in
// one by one, each alone: as many steps as there are passes. Not together with a Recorder.
class DeviceCounters final : public Observer {
 public:
  // Null if the device counts nothing. DeviceError with the reason, and what to set, if it refuses.
  static std::unique_ptr<DeviceCounters> of(Executor& executor);
  explicit DeviceCounters(std::unique_ptr<RangeCounters> counters);

  std::span<const DeviceMetric> metrics() const { return counters_->metrics(); }
  std::size_t passes() const { return counters_->passes(); }

  // Around each step. No more is counted once done().
  void begin_step(Executor& executor);
  void end_step(Executor& executor);
  bool done() const { return done_; }
  // By node, after its first run in a step; the id of a range is the node's.
  std::vector<RangeCounters::Range> ranges() const { return counters_->ranges(); }

  void on_node_begin(const Graph&, NodeId) override;
  void on_node(const Graph&, NodeId, Clock::time_point begin, Clock::time_point end) override;

 private:
  std::unique_ptr<RangeCounters> counters_;
  std::vector<bool> counted_;  // by node, in this step
  bool in_range_ = false, done_ = false;
};

// The nodes of one operator in one phase. Bytes are sums over the nodes, percentages means by the
// time that the nodes take.
struct DeviceCounterRow {
  std::string op;
  Phase phase = Phase::forward;
  std::int64_t nodes = 0;
  double time_ns = 0;          // of a step, when nothing was counted
  double expected_bytes = 0;   // each operand moved once, as the operators count
  std::vector<double> values;  // in the order of the metrics
};
struct DeviceCounterReport {
  std::vector<DeviceMetric> metrics;
  std::size_t passes = 0;
  std::vector<DeviceCounterRow> rows;  // most time first
};

// `recording` is on the device's clock, of the same graph.
DeviceCounterReport report_device_counters(const Recording& recording,
                                           std::span<const DeviceMetric> metrics,
                                           std::span<const RangeCounters::Range> ranges,
                                           std::size_t passes);

std::string device_counters_text(const DeviceCounterReport& report);
std::string device_counters_json(const DeviceCounterReport& report);

}  // namespace ridge
