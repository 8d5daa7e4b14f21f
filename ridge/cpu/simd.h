#pragma once

// The little that our loops share. They are written as plain loops over floats that the compiler
// vectorizes (sums under "omp simd reduction"), so one source serves every instruction set.

#include <bit>
#include <cstdint>

#include "ridge/base/dtype.h"

namespace ridge {

inline float load(const float* p) { return *p; }
inline float load(const BFloat16* p) { return static_cast<float>(*p); }
inline float load(const Float16* p) { return static_cast<float>(*p); }
inline float load(const Int8* p) { return static_cast<float>(*p); }
inline void store(float* p, float x) { *p = x; }
inline void store(BFloat16* p, float x) { *p = BFloat16(x); }
inline void store(Float16* p, float x) { *p = Float16(x); }
inline void store(Int8* p, float x) { *p = Int8(x); }

// e^x to within 2 units in the last place (over all floats the worst is 1.01), without a branch.
// Infinity where e^x overflows, 0 where it is below half the smallest denormal and at -infinity,
// NaN for NaN. Results below the smallest normal float are denormal, not flushed to 0. x = n ln 2 +
// r with |r| <= ln 2 / 2, ln 2 split in two parts so that r is exact (Cody and Waite); e^r = 1 + r
// + r^2 p(r), where p of degree 4 is fitted for the least maximum of the relative error (5e-9 =
// 2^-27.6; Taylor's polynomial of that degree is off by 2 units at the ends).
inline float vexp(float x) {
  // 1.5 * 2^23: adding and subtracting it rounds to the nearest integer, whose bits are then the
  // low bits of the sum.
  constexpr float round_magic = 12582912.0f;
  // NaN falls through both comparisons and every operation below.
  const float clamped = x < -104.0f ? -104.0f : (x > 89.0f ? 89.0f : x);
  const float shifted = clamped * 1.44269504089f + round_magic;
  const float n = shifted - round_magic;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 0x1.6a1a72p-10f;
  p = p * r + 0x1.123fc6p-7f;
  p = p * r + 0x1.555916p-5f;
  p = p * r + 0x1.55548ap-3f;
  p = p * r + 0x1.fffffcp-2f;
  p = p * (r * r) + r + 1.0f;
  // 2^n in two factors, because n reaches 128 and -150, beyond a normal float's exponent.
  const std::int32_t k =
      std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(round_magic);
  const std::int32_t half = k >> 1;
  const float scale1 = std::bit_cast<float>((half + 127) << 23);
  const float scale2 = std::bit_cast<float>((k - half + 127) << 23);
  return p * scale1 * scale2;
}

inline float sigmoid(float x) { return 1.0f / (1.0f + vexp(-x)); }

// Calls function.template operator()<T>() for the element type of a floating dtype.
template <class F>
auto dispatch_floating(DType dtype, const F& function) {
  if (dtype == DType::bf16) return function.template operator()<BFloat16>();
  if (dtype == DType::f16) return function.template operator()<Float16>();
  return function.template operator()<float>();
}

// The same, or for s8, whose elements are rounded floats too.
template <class F>
auto dispatch_rounded(DType dtype, const F& function) {
  if (dtype == DType::s8) return function.template operator()<Int8>();
  return dispatch_floating(dtype, function);
}

// Rows per task such that a task touches some 32 KiB: enough work to outweigh the hand-over, little
// enough to spread over many cores.
inline std::int64_t rows_per_task(std::int64_t columns) {
  const std::int64_t rows = 8192 / (columns < 1 ? 1 : columns);
  return rows < 1 ? 1 : rows;
}

}  // namespace ridge
