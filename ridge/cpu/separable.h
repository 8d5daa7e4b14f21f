#pragma once

#include <array>

#include "ridge/cpu/prepare.h"
#include "ridge/ops/axis.h"
#include "ridge/ops/image.h"

namespace ridge {

// The image whose rows are the map axes[0] of the operand's, and whose columns axes[1]; or, if
// `transposed`, the operand's by the transposes of these maps.
KernelPtr separable_kernel(CpuPrepare& prepare, const std::array<Axis, 2>& axes, bool transposed,
                           ImageLayout layout);

}  // namespace ridge
