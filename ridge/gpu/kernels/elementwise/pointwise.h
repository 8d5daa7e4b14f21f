#pragma once

#include "ridge/gpu/codegen/pointwise_source.h"
#include "ridge/gpu/device/prepare.h"

namespace ridge::gpu {

// The two candidates for a chain: by a kernel that is generated for it, null where there can be
// none (gpu/codegen/generated_kernels.h); and by a kernel that interprets any.
KernelPtr generated_pointwise(const Pointwise& op, GpuPrepare& prepare);
KernelPtr interpreted_pointwise(const Pointwise& op, GpuPrepare& prepare);

}  // namespace ridge::gpu
