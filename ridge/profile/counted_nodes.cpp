#include "ridge/profile/counted_nodes.h"

namespace ridge {

CountedNodes counted_nodes(const StepRecorder& recorder) {
  CountedNodes counted;
  if (const DeviceCounters* const device = recorder.counted_device()) {
    counted.metrics.assign(device->metrics().begin(), device->metrics().end());
    counted.nodes = device->ranges();
  }
  const HardwareCounters* const counters = recorder.counters();
  if (counters == nullptr) return counted;
  for (const std::string& name : counters->names())
    counted.metrics.push_back({.name = name, .unit = "", .metric = name});
  for (const HardwareCounters::NodeCounts& node : counters->node_counts()) {
    RangeCounters::Range range{.id = node.node, .values = node.counts};
    for (double& value : range.values) value /= static_cast<double>(node.calls);
    counted.nodes.push_back(std::move(range));
  }
  return counted;
}

}  // namespace ridge
