#pragma once

// What all kernels for Hopper share: how threads are grouped, and the element types of operands of
// 16 bits.

#include "ridge/base/dtype.h"

namespace ridge::gpu::sm90 {

inline constexpr int warp_threads = 32;
inline constexpr int warpgroup_threads = 128, warpgroup_warps = 4;
inline constexpr int warpgroup_rows = 64;  // rows of one wgmma
inline constexpr int warp_rows = 16;       // of which each warp holds so many
inline constexpr float log2e = 1.4426950408889634f;
inline constexpr float ln2 = 0.6931471805599453f;

// Calls function.template operator()<T>() for the element type of operands of 16 bits.
template <class F>
void with_element(DType dtype, const F& function) {
  if (dtype == DType::f16)
    function.template operator()<Float16>();
  else
    function.template operator()<BFloat16>();
}
}  // namespace ridge::gpu::sm90
