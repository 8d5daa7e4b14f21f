#include <algorithm>
#include <limits>
#include <map>

#include "ridge/profile/recording.h"

namespace ridge {
namespace {

// A run of a node on the device.
struct DeviceRun {
  std::size_t run;  // index into Recording::nodes
  std::int64_t begin_ns, end_ns;
  std::int64_t later_ns = 0;
  std::int64_t last_ns = end_ns;  // when its last activity ends
};

// A time that a run has on the device: of an activity, or of the run if it has none.
struct Piece {
  std::size_t run;
  std::int64_t begin_ns, end_ns;
};

// In the order in which the device began them. A run without activity is placed behind the one that
// was launched before it.
std::vector<Piece> pieces_of(const Recording& host) {
  std::vector<Piece> pieces;
  constexpr std::int64_t none = std::numeric_limits<std::int64_t>::min();
  std::vector<std::int64_t> ends(host.nodes.size(), none);
  for (const Activity& activity : host.activities) {
    if (!activity.on_device() || activity.run >= ends.size()) continue;
    pieces.push_back({activity.run, activity.begin_ns, activity.end_ns});
    ends[activity.run] = std::max(ends[activity.run], activity.end_ns);
  }
  std::int64_t time_ns = host.steps.empty() ? 0 : host.steps.front().begin_ns;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (ends[i] == none)
      pieces.push_back({i, time_ns, time_ns});
    else
      time_ns = ends[i];
  }
  std::ranges::stable_sort(pieces, {}, &Piece::begin_ns);
  return pieces;
}

// All runs, in the order in which the device began them.
std::vector<DeviceRun> device_runs(const Recording& host) {
  // Slices of traces that hold a node end a few nanoseconds after it (see Timeline).
  constexpr std::int64_t apart_ns = 10;
  constexpr std::size_t nowhere = std::numeric_limits<std::size_t>::max();
  std::vector<DeviceRun> runs;
  std::vector<std::size_t> place(host.nodes.size(), nowhere);  // in runs, by run
  std::int64_t free_ns = std::numeric_limits<std::int64_t>::min();
  bool goes_on = false;  // whether the last run still has the device for itself
  for (const Piece& piece : pieces_of(host)) {
    if (place[piece.run] == nowhere) {
      const std::int64_t begin = piece.begin_ns < free_ns ? free_ns + apart_ns : piece.begin_ns;
      place[piece.run] = runs.size();
      runs.push_back({piece.run, begin, std::max(piece.end_ns, begin)});
      free_ns = runs.back().end_ns;
      goes_on = true;
      continue;
    }
    DeviceRun& run = runs[place[piece.run]];
    run.last_ns = std::max(run.last_ns, piece.end_ns);
    if (piece.end_ns <= free_ns) continue;
    if (goes_on && &run == &runs.back()) {
      run.end_ns = piece.end_ns;
    } else {
      run.later_ns += piece.end_ns - std::max(piece.begin_ns, free_ns);
      goes_on = false;
    }
    free_ns = piece.end_ns;
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

// A step ends when the device is done with it, and so does its last phase. The next does not begin
// before: the executor may be far ahead.
void stretch_steps(Recording& device, const std::vector<DeviceRun>& runs) {
  struct Interval {
    std::int64_t begin_ns = std::numeric_limits<std::int64_t>::max();
    std::int64_t end_ns = std::numeric_limits<std::int64_t>::min();
  };
  std::map<std::int32_t, Interval> of_step;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Interval& time = of_step[device.nodes[i].step];
    time.begin_ns = std::min(time.begin_ns, runs[i].begin_ns);
    time.end_ns = std::max(time.end_ns, runs[i].last_ns);
  }
  std::int64_t end_ns = std::numeric_limits<std::int64_t>::min();
  for (Recording::Step& step : device.steps) {
    step.begin_ns = std::max(step.begin_ns, end_ns);
    if (const auto it = of_step.find(step.step); it != of_step.end()) {
      step.begin_ns = std::min(step.begin_ns, std::max(it->second.begin_ns, end_ns));
      step.end_ns = std::max(step.end_ns, it->second.end_ns);
    }
    end_ns = step.end_ns = std::max(step.end_ns, step.begin_ns);
  }
  for (std::size_t i = 0; i < device.phases.size(); ++i) {
    Recording::PhaseRun& phase = device.phases[i];
    if (i + 1 == device.phases.size() || device.phases[i + 1].step != phase.step)
      phase.end_ns = std::max(phase.end_ns, of_step[phase.step].end_ns);
  }
}

// What was allocated for a run is there when the device begins it, and what was released after a
// run is gone when the device has ended it.
void move_changes(std::vector<Recording::MemoryChange>& changes,
                  const std::vector<Recording::NodeRun>& launches,
                  const std::vector<DeviceRun>& on_device) {
  std::int64_t time_ns = std::numeric_limits<std::int64_t>::min();
  for (Recording::MemoryChange& change : changes) {
    const auto next = static_cast<std::size_t>(
        std::ranges::lower_bound(launches, change.time_ns, {}, &Recording::NodeRun::begin_ns) -
        launches.begin());
    if (change.bytes > 0 && next < on_device.size() && (next > 0 || change.step > 0))
      change.time_ns = on_device[next].begin_ns;
    else if (next > 0)
      change.time_ns = on_device[next - 1].last_ns;
    change.time_ns = time_ns = std::max(time_ns, change.time_ns);
  }
}

}  // namespace

Recording device_time(const Recording& host) {
  if (host.activities.empty() || host.on_device_time) return host;
  Recording device = host;
  device.on_device_time = true;
  device.nodes.clear();
  const std::vector<DeviceRun> runs = device_runs(host);
  std::vector<DeviceRun> by_run(runs.size());
  for (const DeviceRun& run : runs) {
    const Recording::NodeRun& launch = host.nodes[run.run];
    device.nodes.push_back({.node = launch.node,
                            .step = launch.step,
                            .begin_ns = run.begin_ns,
                            .end_ns = run.end_ns,
                            .later_ns = run.later_ns});
    by_run[run.run] = run;
  }
  device.phases = phases_of(*host.graph, device.nodes);
  stretch_steps(device, runs);
  move_changes(device.memory, host.nodes, by_run);
  return device;
}

}  // namespace ridge
