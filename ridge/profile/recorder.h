#pragma once

#include <cstddef>
#include <map>
#include <string_view>

#include "ridge/profile/recording.h"
#include "ridge/run/executor.h"
#include "ridge/run/observer.h"

namespace ridge {

struct RecorderOptions {
  bool memory = true;  // record allocations too
  std::size_t max_records = std::size_t{4}
                            << 20;  // of each kind; later ones are counted as dropped
};

// Turns what an executor does into a Recording. Buffers are filled on the executor's thread alone,
// so no record takes a lock; they grow to a bound and no further.
class Recorder final : public Observer {
 public:
  explicit Recorder(RecorderOptions options = {}) : options_(options) {}

  // Recording starts with attach() and ends with detach(); both may happen once. A device that runs
  // by itself is traced in between: DeviceError if that cannot be.
  void attach(Executor& executor);
  void detach(Executor& executor);

  // Called around each step by whoever runs the steps. What runs between steps, such as an
  // evaluation, is left out; what it allocates is not.
  void begin_step(std::int64_t step);
  void end_step(double loss);
  // What a sampler read of the device's card; until detach().
  void add_card(std::vector<CardState> states);
  // What a sampler read of the machine; after the last attach().
  void add_system(SystemSamples samples);

  const Recording& recording() const { return recording_; }
  Recording& recording() { return recording_; }

  void on_node_begin(const Graph&, NodeId) override;
  void on_node(const Graph&, NodeId, Clock::time_point begin, Clock::time_point end) override;
  void on_replay_begin(const Graph&) override;
  void on_replay(const Graph&, Clock::time_point begin, Clock::time_point end) override;
  void on_replayed(const Graph&, NodeId) override;
  bool wants_nodes() const override { return tracer_ == nullptr; }
  void on_allocate(const Graph&, ValueId, const void* address, std::size_t bytes,
                   const MemoryStats&) override;
  void on_release(const Graph&, ValueId, const void* address, std::size_t bytes,
                  const MemoryStats&) override;
  void on_workspace(const Graph&, NodeId, const void* address, std::size_t bytes,
                    const MemoryStats&) override;
  void on_workspace_release(const Graph&, NodeId, const void* address, std::size_t bytes,
                            const MemoryStats&) override;
  void on_phase_begin(Phase) override;
  void on_phase(Phase, Clock::time_point begin, Clock::time_point end) override;

 private:
  void change(bool workspace, std::uint32_t owner, const void* address, std::int64_t bytes,
              const MemoryStats& stats);
  std::int64_t since_epoch(Clock::time_point time) const;
  void add_activities(DeviceTrace trace);

  // Appends a record, or counts it as dropped.
  template <class T>
  void append(std::vector<T>& records, const T& record) {
    if (records.size() < options_.max_records)
      records.push_back(record);
    else
      ++recording_.dropped;
  }

  RecorderOptions options_;
  Tracer* tracer_ = nullptr;  // of a device that has one
  bool entered_ = false;      // it knows of the node that is being launched
  Recording recording_;
  Clock::time_point epoch_;
  std::int32_t step_ = 0;
  bool in_step_ = false;
  Phase phase_ = Phase::forward;
  Clock::time_point step_begin_;
};

}  // namespace ridge
