#pragma once

// The warpgroup product of integers: d[64, N] (+)= a[64, 32] b[32, N] of s8, summed in 32 bits.
// Both operands lie in shared memory with k along their rows, where a step of 32 in k is 32 bytes
// as one of 16 is in wgmma.h, whose descriptors, order of accumulators and rules for waiting hold
// here.

#include "ridge/gpu/sm90/wgmma.h"

namespace ridge::gpu::ptx {

// The instruction for N columns, N / 2 accumulators a thread; after these the operands are, by
// their places, a's and b's tiles and whether to accumulate.
#define RIDGE_WGMMA(N, count, at_a, at_b, at_accumulate)                         \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #at_accumulate               \
               ", 0;\n"                                                          \
               "wgmma.mma_async.sync.aligned.m64n" #N                            \
               "k32.s32.s8.s8"                                                   \
               " {" RIDGE_REGISTERS_##count "}, %" #at_a ", %" #at_b ", p;\n}\n" \
               : RIDGE_ACCUMULATORS_##count("+r", d)                             \
               : "l"(a), "l"(b), "r"(accumulate))

template <int N>
__device__ inline void wgmma_int8(std::int32_t (&d)[N / 2], std::uint64_t a, std::uint64_t b,
                                  int accumulate) {
  if constexpr (N == 64)
    RIDGE_WGMMA(64, 32, 32, 33, 34);
  else if constexpr (N == 128)
    RIDGE_WGMMA(128, 64, 64, 65, 66);
  else
    static_assert(N == 0, "no wgmma of this width here");
}
#undef RIDGE_WGMMA

}  // namespace ridge::gpu::ptx
