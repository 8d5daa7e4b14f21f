#include "ridge/base/error.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/ops/collective.h"

namespace ridge {

// Plans know of ranks on GPUs; nothing moves their data yet.
KernelPtr AllReduce::gpu(GpuPrepare&) const {
  if (ranks == 1) return nullptr;
  return make_kernel([ranks = ranks](const Launch&) {
    throw DeviceError("{} over {} ranks is not there yet on a GPU: use --device cpu", name, ranks);
  });
}

}  // namespace ridge
