#pragma once

#include <cstddef>

#include "ridge/gpu/device/prepare.h"

namespace ridge::gpu {

// Returns the kernel of a collective of one rank, which takes so many operands for each result. It
// copies the first of these, unless that lies in the result's memory already.
KernelPtr copies(GpuPrepare& prepare, std::size_t operands_each);

}  // namespace ridge::gpu
