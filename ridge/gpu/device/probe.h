#pragma once

// Kernels that do one thing only, to measure what a card can do at most.

#include "ridge/device/device.h"
#include "ridge/gpu/device/context.h"

namespace ridge::gpu {

// See Device::probe(); `gpu` outlives the kernel. Buffers are rounded down to whole tiles of 16
// KiB, of which there is at least one.
ProbeKernel make_probe(const Context& gpu, Probe what, std::size_t bytes);

}  // namespace ridge::gpu
