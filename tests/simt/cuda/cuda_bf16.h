#pragma once

#include "tests/simt/language.h"

struct __nv_bfloat16 {
  std::uint16_t bits;
};
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {ridge::BFloat16(x).bits}; }
inline std::uint16_t __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
