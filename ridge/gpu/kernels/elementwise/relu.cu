#include "ridge/ops/relu.h"

#include "ridge/gpu/kernels/activation.h"
#include "ridge/gpu/kernels/elementwise.h"

namespace ridge {

KernelPtr Relu::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return gpu::map_elements<T, T>(prepare, gpu::ReluOf{});
  });
}

KernelPtr ReluGrad::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return gpu::map_pairs<T>(prepare, gpu::ReluGradOf{});
  });
}

}  // namespace ridge
