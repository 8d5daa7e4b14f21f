#include "ridge/ops/collective.h"

#include "ridge/base/error.h"
#include "ridge/gpu/kernels/collective/copies.h"

namespace ridge {
namespace {

// Plans know of ranks on GPUs; nothing moves their data yet.
template <class Op>
KernelPtr none_yet(const Op& op) {
  return make_kernel([ranks = op.ranks](const Launch&) {
    throw DeviceError("{} over {} ranks is not there yet on a GPU: use --device cpu", Op::name,
                      ranks);
  });
}

}  // namespace

KernelPtr AllReduce::gpu(GpuPrepare&) const { return ranks == 1 ? nullptr : none_yet(*this); }

KernelPtr ReduceScatter::gpu(GpuPrepare& prepare) const {
  return ranks == 1 ? gpu::copies(prepare, 1) : none_yet(*this);
}

KernelPtr AllGather::gpu(GpuPrepare& prepare) const {
  return ranks == 1 ? gpu::copies(prepare, operands_each()) : none_yet(*this);
}

}  // namespace ridge
