#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ridge/device/activity.h"
#include "ridge/graph/graph.h"
#include "ridge/passes/target.h"
#include "ridge/profile/system_samples.h"

namespace ridge {

// What was seen of a run between two moments: plain records in the order in which they happened,
// with times in nanoseconds since `epoch_ns`. Every profile, table and trace is made of this and of
// the graph it points to; nothing else describes the run.
struct Recording {
  struct NodeRun {
    NodeId node;
    std::int32_t step;
    std::int64_t begin_ns, end_ns;
    // What it took of its device's time after other runs had begun: see device_time().
    std::int64_t later_ns = 0;

    std::int64_t time_ns() const { return end_ns - begin_ns + later_ns; }
  };

  // A change of what is allocated: a value's storage, or a node's workspace.
  struct MemoryChange {
    std::int64_t time_ns;
    std::int32_t step;
    Phase phase;
    bool workspace;       // `owner` is a node, else a value
    std::uint32_t owner;  // ValueId of the storage, or NodeId
    std::uint64_t address;
    std::int64_t bytes;            // negative for a release
    std::uint64_t live, reserved;  // by the allocator, after the change
  };

  struct PhaseRun {
    Phase phase;
    std::int32_t step;
    std::int64_t begin_ns, end_ns;
  };

  struct Step {
    std::int32_t step;  // from 1, as printed
    std::int64_t begin_ns, end_ns;
    double loss;
  };

  // A captured graph that was given to the device at once: the time of the call. The runs of its
  // nodes follow each other from `first_node` on and have no time but on the device.
  struct ReplayRun {
    std::int32_t step;
    std::int64_t begin_ns, end_ns;
    std::uint32_t first_node;  // index into `nodes`
  };

  const Graph* graph = nullptr;  // outlives the recording
  std::string device;            // "cpu"
  DeviceKind device_kind = DeviceKind::cpu;
  std::string hardware, device_description;
  int threads = 1;
  int rank = 0, ranks = 1;                     // of the run that the device has a part of
  std::int64_t process_id = 0, thread_id = 0;  // the executor's
  std::int64_t epoch_ns = 0;                   // since 1970-01-01, of time 0

  std::vector<NodeRun> nodes;
  std::vector<MemoryChange> memory;  // begins with all that was alive when recording began
  std::vector<PhaseRun> phases;
  std::vector<Step> steps;
  std::uint64_t dropped = 0;  // records that the bounded buffers had no room for

  // What an asynchronous device did. The times above are then those of the host's launches, and
  // device_time() gives the device's. Activities are by begin; the `run` of one is an index
  // into `nodes`.
  std::vector<ReplayRun> replays;
  std::vector<Activity> activities;
  std::vector<std::string> activity_names;
  std::uint64_t activities_dropped = 0;       // by the tracing library or for want of room
  std::uint64_t activities_out_of_order = 0;  // see DeviceTrace
  ProcessorLimits processor;
  std::vector<CardState> card;  // with times like all others
  // What the machine did beside the whole run, also before and after what is recorded; null unless
  // asked for.
  std::shared_ptr<const SystemSamples> system;
  bool on_device_time = false;

  // Steps of the same work without recording, for comparison: seconds each; empty if none ran.
  std::vector<double> unrecorded_step_seconds;
};

// The same run on the clock of its device, for every report that says where time goes: a node's run
// lasts from the begin of its first activity on the device to the end of the last one before those
// of another run, without what is counted to the run before it already where the two overlap. Where
// a run goes on after others have begun, as one does whose second part nothing waits for, that is
// its later_ns. Phases and steps hold their nodes, and memory changes hands when the device gets
// there. Nodes that were replayed are there like those that were launched. A run without any
// activity takes no time. What ran on the CPU is returned as it is.
Recording device_time(const Recording& recording);

// The name of a value for people: its own, or that of the scope, operator and output that make it,
// such as "layers.0.attention: softmax".
std::string display_name(const Graph& graph, ValueId value);

}  // namespace ridge
