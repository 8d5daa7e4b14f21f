#pragma once

#include <cstddef>

#include "ridge/gpu/device/prepare.h"

namespace ridge::gpu {

// What is left of a collective of one rank, of so many operands for each result: the first of these
// is the result, and is copied unless it lies there already.
KernelPtr copies(GpuPrepare& prepare, std::size_t operands_each);

}  // namespace ridge::gpu
