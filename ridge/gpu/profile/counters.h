#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "ridge/device/activity.h"

namespace ridge::gpu {

// Bytes read from and written to the card's memory; the part of the time in which the tensor cores
// were busy and the warps that were resident of those that a multiprocessor holds, both while it
// had work; and the part of the accesses to the second cache that hit. Two passes on sm90. Where
// counts_all_units(), the use of pipes, caches and memory too, in more passes. There is no time
// among them: counting makes ranges last longer than they would.
std::span<const DeviceMetric> default_metrics();

// Counters over ranges of what the calling thread's device is given, in the order of `metrics`; at
// most `max_ranges`. DeviceError, with what to do, if the driver keeps them from this user, or if
// the card does not have one.
std::unique_ptr<RangeCounters> make_range_counters(std::span<const DeviceMetric> metrics,
                                                   std::size_t max_ranges);

}  // namespace ridge::gpu
