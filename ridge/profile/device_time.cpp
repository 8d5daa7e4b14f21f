#include <algorithm>
#include <limits>
#include <map>

#include "ridge/profile/recording.h"

namespace ridge {
namespace {

struct DeviceInterval {
  std::int64_t begin_ns = std::numeric_limits<std::int64_t>::max();
  std::int64_t end_ns = std::numeric_limits<std::int64_t>::min();

  bool empty() const { return begin_ns > end_ns; }
  void add(const Activity& activity) {
    begin_ns = std::min(begin_ns, activity.begin_ns);
    end_ns = std::max(end_ns, activity.end_ns);
  }
};

// A run of a node on the device.
struct DeviceRun {
  std::size_t run;  // index into Recording::nodes
  DeviceInterval time;
};

// All runs, in the order in which the device began them. A run without activity is placed behind
// the one that was launched before it.
std::vector<DeviceRun> device_runs(const Recording& host) {
  std::vector<DeviceRun> runs(host.nodes.size());
  for (const Activity& activity : host.activities)
    if (activity.on_device() && activity.run < runs.size()) runs[activity.run].time.add(activity);
  std::int64_t time_ns = host.steps.empty() ? 0 : host.steps.front().begin_ns;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    runs[i].run = i;
    if (runs[i].time.empty()) runs[i].time = {time_ns, time_ns};
    time_ns = runs[i].time.end_ns;
  }
  std::ranges::stable_sort(runs, {}, [](const DeviceRun& run) { return run.time.begin_ns; });
  // Slices of traces that hold a node end a few nanoseconds after it (see Timeline).
  constexpr std::int64_t apart_ns = 10;
  std::int64_t free_ns = std::numeric_limits<std::int64_t>::min();
  for (DeviceRun& run : runs) {
    if (run.time.begin_ns < free_ns) run.time.begin_ns = free_ns + apart_ns;
    run.time.end_ns = std::max(run.time.end_ns, run.time.begin_ns);
    free_ns = run.time.end_ns;
  }
  return runs;
}

// Runs of one phase that follow each other in a step.
std::vector<Recording::PhaseRun> phases_of(const Graph& graph,
                                           const std::vector<Recording::NodeRun>& nodes) {
  std::vector<Recording::PhaseRun> phases;
  for (const Recording::NodeRun& run : nodes) {
    const Phase phase = graph.nodes()[run.node].phase;
    if (phases.empty() || phases.back().phase != phase || phases.back().step != run.step)
      phases.push_back({phase, run.step, run.begin_ns, run.end_ns});
    phases.back().end_ns = run.end_ns;
  }
  return phases;
}

// A step ends when the device is done with it, and the next does not begin before: the executor may
// be far ahead.
void stretch_steps(std::vector<Recording::Step>& steps,
                   const std::vector<Recording::NodeRun>& nodes) {
  std::map<std::int32_t, DeviceInterval> device;  // by step
  for (const Recording::NodeRun& run : nodes) {
    DeviceInterval& time = device[run.step];
    time.begin_ns = std::min(time.begin_ns, run.begin_ns);
    time.end_ns = std::max(time.end_ns, run.end_ns);
  }
  std::int64_t end_ns = std::numeric_limits<std::int64_t>::min();
  for (Recording::Step& step : steps) {
    step.begin_ns = std::max(step.begin_ns, end_ns);
    if (const auto it = device.find(step.step); it != device.end()) {
      step.begin_ns = std::min(step.begin_ns, std::max(it->second.begin_ns, end_ns));
      step.end_ns = std::max(step.end_ns, it->second.end_ns);
    }
    end_ns = step.end_ns = std::max(step.end_ns, step.begin_ns);
  }
}

// What was allocated for a run is there when the device begins it, and what was released after a
// run is gone when the device has ended it.
void move_changes(std::vector<Recording::MemoryChange>& changes,
                  const std::vector<Recording::NodeRun>& launches,
                  const std::vector<DeviceInterval>& on_device) {
  std::int64_t time_ns = std::numeric_limits<std::int64_t>::min();
  for (Recording::MemoryChange& change : changes) {
    const auto next = static_cast<std::size_t>(
        std::ranges::lower_bound(launches, change.time_ns, {}, &Recording::NodeRun::begin_ns) -
        launches.begin());
    if (change.bytes > 0 && next < on_device.size() && (next > 0 || change.step > 0))
      change.time_ns = on_device[next].begin_ns;
    else if (next > 0)
      change.time_ns = on_device[next - 1].end_ns;
    change.time_ns = time_ns = std::max(time_ns, change.time_ns);
  }
}

}  // namespace

Recording device_time(const Recording& host) {
  if (host.activities.empty() || host.on_device_time) return host;
  Recording device = host;
  device.on_device_time = true;
  device.nodes.clear();
  std::vector<DeviceInterval> on_device(host.nodes.size());
  for (const auto& [run, time] : device_runs(host)) {
    device.nodes.push_back(
        {host.nodes[run].node, host.nodes[run].step, time.begin_ns, time.end_ns});
    on_device[run] = time;
  }
  device.phases = phases_of(*host.graph, device.nodes);
  stretch_steps(device.steps, device.nodes);
  move_changes(device.memory, host.nodes, on_device);
  return device;
}

}  // namespace ridge
