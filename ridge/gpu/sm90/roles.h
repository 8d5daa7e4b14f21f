#pragma once

// Thread blocks of a producer warp, which feeds the copy engine, and consumer warpgroups.

#include "ridge/gpu/sm90/ptx.h"
#include "ridge/gpu/sm90/warpgroup.h"

namespace ridge::gpu::sm90 {

// The first warpgroup gives up registers, and one of its threads calls produce(); the others take
// them over and call consume(warpgroup), counted from 0.
template <int ProducerRegisters, int ConsumerRegisters, class Produce, class Consume>
__device__ void take_roles(const Produce& produce, const Consume& consume) {
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / warpgroup_threads, 0);
  if (warpgroup == 0) {
    ptx::fewer_registers<ProducerRegisters>();
    if (threadIdx.x < warp_threads && ptx::elect_one()) produce();
  } else {
    ptx::more_registers<ConsumerRegisters>();
    consume(warpgroup - 1);
  }
}

}  // namespace ridge::gpu::sm90
