#include "ridge/ops/residual_bottleneck.h"

#include "ridge/cpu/prepare.h"
#include "ridge/device/residual_bottleneck_kernels.h"

namespace ridge {

KernelPtr ResidualBottleneck::cpu(CpuPrepare& prepare) const {
  return in_parts(*this, prepare,
                  [](const Conv2d& conv, CpuPrepare& of_part) { return conv.cpu(of_part); });
}

}  // namespace ridge
