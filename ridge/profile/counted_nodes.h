#pragma once

#include <vector>

#include "ridge/device/activity.h"
#include "ridge/profile/step_recorder.h"

namespace ridge {

// What was counted in hardware, node by node: for a run of the node, which on a CPU is the mean of
// its runs. The id of a range is the node's; the values stand in the order of the metrics.
struct CountedNodes {
  std::vector<DeviceMetric> metrics;  // of a CPU named as in HardwareCounters::names()
  std::vector<RangeCounters::Range> nodes;
};
// Empty if nothing was counted.
CountedNodes counted_nodes(const StepRecorder& recorder);

}  // namespace ridge
