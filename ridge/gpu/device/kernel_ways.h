#pragma once

// Several ways to compute an operator, of which the tuner finds the fastest.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/gpu/device/prepare.h"

namespace ridge::gpu {

struct KernelWay {
  std::string name;  // as users are told: "own kernels", "cuDNN 9.14.0"
  // Called if its kernel is needed, be it to be timed. DeviceError if there is none after all.
  std::function<KernelPtr(GpuPrepare&)> prepare;
};

// The kernel of the fastest way. The first must exist, and is what others are measured against; it
// is taken without a tuner, and where a way that was chosen in an earlier run is there no more.
// `key` describes the work and all that the times depend on; `work` is what users read.
KernelPtr fastest_kernel(GpuPrepare& prepare, std::string_view key, std::string_view work,
                         const std::vector<KernelWay>& ways);

}  // namespace ridge::gpu
