#pragma once

#include "tests/simt/language.h"

enum __nv_saturation_t { __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

// The first in the lower byte.
inline std::uint16_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t,
                                              __nv_fp8_interpretation_t format) {
  const auto byte = [format](float value) -> unsigned {
    return format == __NV_E4M3 ? ridge::Float8E4M3(value).bits : ridge::Float8E5M2(value).bits;
  };
  return static_cast<std::uint16_t>(byte(x.x) | byte(x.y) << 8);
}
