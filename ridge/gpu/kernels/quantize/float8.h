#pragma once

// Conversion to floats of 8 bits, by the instruction for it where there is one.

#include "ridge/gpu/device/runtime.h"

#if !defined(__HIP__)
#include <cuda_fp8.h>
#endif

namespace ridge::gpu {

// Four neighbors, the first in the lowest byte; as Float8 converts them.
template <class Q>
__device__ inline std::uint32_t pack_float8(const float (&x)[4]) {
#if defined(__HIP__)
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word |= static_cast<std::uint32_t>(Q(x[i]).bits) << 8 * i;
  return word;
#else
  constexpr auto format = std::is_same_v<Q, Float8E4M3> ? __NV_E4M3 : __NV_E5M2;
  const std::uint32_t low =
      __nv_cvt_float2_to_fp8x2(make_float2(x[0], x[1]), __NV_SATFINITE, format);
  const std::uint32_t high =
      __nv_cvt_float2_to_fp8x2(make_float2(x[2], x[3]), __NV_SATFINITE, format);
  return low | high << 16;
#endif
}

// Four words of four bytes each as rows of a matrix, transposed.
__device__ inline void transpose_bytes(std::uint32_t (&rows)[4]) {
  const std::uint32_t ab_low = __byte_perm(rows[0], rows[1], 0x5140);
  const std::uint32_t ab_high = __byte_perm(rows[0], rows[1], 0x7362);
  const std::uint32_t cd_low = __byte_perm(rows[2], rows[3], 0x5140);
  const std::uint32_t cd_high = __byte_perm(rows[2], rows[3], 0x7362);
  rows[0] = __byte_perm(ab_low, cd_low, 0x5410);
  rows[1] = __byte_perm(ab_low, cd_low, 0x7632);
  rows[2] = __byte_perm(ab_high, cd_high, 0x5410);
  rows[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

}  // namespace ridge::gpu
