#pragma once

#include <memory>

#include "ridge/device/device.h"
#include "ridge/session/options.h"

namespace ridge {

// Whether --device auto means a GPU: this build can use one, and one is there.
bool has_gpu();

// The device that options.device names. DeviceError if this build or this machine has none,
// UsageError if it does not have the options' dtype.
std::unique_ptr<Device> open_device(const RunOptions& options);

// UsageError if a device cannot compute what the options ask for: a pass or a precision.
void check_device(const RunOptions& options, const Device& device);

}  // namespace ridge
