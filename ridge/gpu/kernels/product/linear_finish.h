#pragma once

#include <cstdint>

#include "ridge/base/dtype.h"
#include "ridge/gpu/device/context.h"
#include "ridge/ops/linear.h"

namespace ridge::gpu {

// y[m, n] = epilogue(sums[m, n] + bias[n] + residual[m, n]), all but the sums of `dtype`: what is
// left to do of a linear layer after its product. Bias and residual are left out where they are
// null; y may be the sums. Addresses are multiples of an element's size. Enqueues; DeviceError.
void finish_linear(const Context& gpu, DType dtype, Epilogue epilogue, std::int64_t m,
                   std::int64_t n, const float* sums, const void* bias, const void* residual,
                   void* y);

}  // namespace ridge::gpu
