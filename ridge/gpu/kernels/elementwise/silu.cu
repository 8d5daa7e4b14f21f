#include "ridge/ops/silu.h"

#include "ridge/gpu/kernels/activation.h"
#include "ridge/gpu/kernels/elementwise.h"

namespace ridge {

KernelPtr Silu::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return gpu::map_elements<T, T>(prepare, gpu::SiluOf{});
  });
}

KernelPtr SiluGrad::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return gpu::map_pairs<T>(prepare, gpu::SiluGradOf{});
  });
}

}  // namespace ridge
