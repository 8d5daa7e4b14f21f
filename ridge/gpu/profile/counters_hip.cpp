#include "ridge/base/error.h"
#include "ridge/gpu/profile/counters.h"

namespace ridge::gpu {

std::span<const DeviceMetric> default_metrics() { return {}; }

std::unique_ptr<RangeCounters> make_range_counters(std::span<const DeviceMetric>, std::size_t) {
  throw DeviceError("no hardware counters: Ridge cannot read those of AMD's GPUs yet");
}

}  // namespace ridge::gpu
