#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "ridge/device/device.h"
#include "ridge/session/options.h"
#include "ridge/session/summary.h"

namespace ridge {

// Whether --device auto means a GPU: this build can use one, and one is there.
bool has_gpu();

// The device that options.device names. DeviceError if this build or this machine has none,
// UsageError if it does not have the options' dtype.
std::unique_ptr<Device> open_device(const TrainOptions& options);

// What is known of this machine, this build and the device; what is not is empty.
SystemInfo system_info(const Device& device, const TrainOptions& options);

std::uint64_t peak_resident_bytes();  // of this process; 0 if the system does not say

// Where choices of kernels are kept between runs, as "see FILE", or why nowhere.
std::string tuning_cache_text();

std::string host_name();      // of this machine; "localhost" if the system does not say
std::string utc_timestamp();  // now, "2026-01-31T12:00:00Z"
std::string_view program_version();

}  // namespace ridge
