#include "ridge/ops/unary.h"

#include "ridge/gpu/kernels/elementwise.h"

namespace ridge {
namespace {

struct Identity {
  __device__ float operator()(float x) const { return x; }
};

struct Multiply {
  float factor;
  __device__ float operator()(float x) const { return factor * x; }
};

}  // namespace

KernelPtr Scale::gpu(GpuPrepare& prepare) const {
  return gpu::map_elements(prepare, Multiply{factor});
}

KernelPtr Cast::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype, [&]<class From>() {
    return gpu::dispatch_floating(prepare.out[0].dtype, [&]<class To>() {
      return gpu::map_elements<From, To>(prepare, Identity{});
    });
  });
}

}  // namespace ridge
