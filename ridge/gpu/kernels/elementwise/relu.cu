#include "ridge/ops/relu.h"

#include "ridge/gpu/kernels/activation.h"
#include "ridge/gpu/kernels/elementwise.h"

namespace ridge {

KernelPtr Relu::gpu(GpuPrepare& prepare) const { return gpu::map_elements(prepare, gpu::ReluOf{}); }

KernelPtr ReluGrad::gpu(GpuPrepare& prepare) const {
  return gpu::map_pairs(prepare, gpu::ReluGradOf{});
}

}  // namespace ridge
