#pragma once

#include <memory>
#include <string_view>

#include "ridge/device/device.h"
#include "ridge/session/options.h"

namespace ridge {

// What --device calls the GPUs that this build is for: "cuda", or "hip" where it is for HIP.
std::string_view gpu_name();

// Whether --device auto means a GPU: this build can use one, and one is there.
bool has_gpu();

// The device that options.device names; of GPUs that one. DeviceError if this build or this machine
// has none, UsageError if it does not have the options' dtype.
std::unique_ptr<Device> open_device(const RunOptions& options, int gpu = 0);

// The GPU, of those that this process sees, of a rank on its machine: ranks_per_gpu in a row share
// one, or all take turns. 0 on a CPU. UsageError if there are not so many GPUs.
int gpu_of_rank(const RunOptions& options, int index_on_host);

// The threads of a rank that shares its machine with so many, itself among them: at least one.
int threads_of_rank(int on_host);

// UsageError if a device cannot compute what the options ask for: a pass or a precision.
void check_device(const RunOptions& options, const Device& device);

}  // namespace ridge
