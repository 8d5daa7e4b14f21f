#include "ridge/ops/fill.h"

#include "ridge/gpu/kernels/elementwise.h"

namespace ridge {
namespace {

struct Constant {
  float value;
  __device__ float operator()() const { return value; }
};

}  // namespace

KernelPtr Fill::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(type.dtype, [&]<class T>() {
    return make_kernel([&gpu = prepare.gpu, n = type.numel(), function = Constant{value}](
                           const Launch& call) { gpu::map(gpu, n, function, call.out<T>()); });
  });
}

}  // namespace ridge
