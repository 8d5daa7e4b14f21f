#pragma once

// Activations for results of 16 bits, in fewer instructions than kernels/activation.h: kernels
// that multiply on tensor cores often wait for them.

#include "ridge/gpu/kernels/conv/conv_epilogue.h"
#include "ridge/gpu/sm90/ptx.h"
#include "ridge/gpu/sm90/warpgroup.h"

namespace ridge::gpu::sm90 {

// To 1 unit in the last place of f32; subnormals count as zero.
__device__ inline float reciprocal(float x) {
  float y = 0;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// SiluOf, but for subnormals.
struct ShortSilu {
  __device__ float operator()(float x) const {
    return x * reciprocal(1.0f + ptx::exp2(-log2e * x));
  }
};

// max(x, 0) - |x| tail(|x|) with the tail of the normal distribution, P(X > |x|), as 2 to the power
// of a polynomial, fitted for the least maximum of the result's relative error: of f16 2^-17.3
// where the result is normal, beyond that 2^-31 of absolute error; of bf16 2^-14.4 where it is more
// than 2^-26, beyond that 2^-40. Of infinity it is NaN.
template <class T>
struct ShortGelu {
  __device__ float operator()(float x) const {
    constexpr bool is_f16 = std::is_same_v<T, Float16>;
    const float a = fabsf(x);
    float p = is_f16 ? 3.24432767e-05f : 2.33045721e-05f;
    p = fmaf(p, a, is_f16 ? -7.48397550e-04f : -6.16244681e-04f);
    p = fmaf(p, a, is_f16 ? 7.94212706e-03f : 7.22685549e-03f);
    // Not below 0, which costs nothing: beyond 8 the power must not rise again.
    p = __saturatef(fmaf(-p, a, is_f16 ? 5.30513860e-02f : 5.12721762e-02f));
    p = fmaf(-p, a, is_f16 ? -4.59171087e-01f : -4.61164236e-01f);
    p = fmaf(p, a, is_f16 ? -1.15103626f : -1.15022242f);
    p = fmaf(p, a, is_f16 ? -1.00000763f : -1.00006139f);
    return fmaf(-a, ptx::exp2(p), fmaxf(x, 0.0f));
  }
};

// apply_epilogue(), of a convolution.
template <int N>
__device__ inline void apply_short_epilogue(Epilogue epilogue, float (&values)[N]) {
  if (epilogue == Epilogue::silu) return map_values(ShortSilu(), values);
  apply_epilogue(epilogue, values);
}

// max(x, 0) of two elements; NaN stays NaN.
template <class T>
__device__ inline std::uint32_t relu_of_word(std::uint32_t x) {
  std::uint32_t y = 0;
  if constexpr (std::is_same_v<T, Float16>)
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(x), "r"(0));
  else
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(x), "r"(0));
  return y;
}

// The same as apply_short_epilogue() of eight values that are rounded and packed then; relu comes
// after rounding, which is the same and two elements at a time.
template <class T>
__device__ inline void pack_with_epilogue(Epilogue epilogue, float (&values)[8],
                                          std::uint32_t (&packed)[4]) {
  const bool is_relu = epilogue == Epilogue::relu;
  if (!is_relu) apply_short_epilogue(epilogue, values);
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    packed[w] = ptx::pack<T>(values[2 * w], values[2 * w + 1]);
    if (is_relu) packed[w] = relu_of_word<T>(packed[w]);
  }
}

}  // namespace ridge::gpu::sm90
