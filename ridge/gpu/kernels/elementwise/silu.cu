#include "ridge/ops/silu.h"

#include "ridge/gpu/kernels/activation.h"
#include "ridge/gpu/kernels/elementwise.h"

namespace ridge {

KernelPtr Silu::gpu(GpuPrepare& prepare) const { return gpu::map_elements(prepare, gpu::SiluOf{}); }

KernelPtr SiluGrad::gpu(GpuPrepare& prepare) const {
  return gpu::map_pairs(prepare, gpu::SiluGradOf{});
}

}  // namespace ridge
