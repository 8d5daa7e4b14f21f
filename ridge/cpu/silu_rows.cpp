#include "ridge/cpu/silu_rows.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

#if !defined(__clang__)
// GCC 12 warns of its own intrinsics (bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace ridge {
namespace {

// x / (1 + 2^t) with t = -x log2(e). 2^t is a power of two times 2^f with |f| <= 1/2, a polynomial
// fitted for the least maximum of the relative error (2^-13.7); the reciprocal is off by 2^-14. The
// maximum of two numbers is the second if one is NaN.
__m512 silu_of(__m512 x) {
  const auto all = [](float value) { return _mm512_set1_ps(value); };
  // Beyond, silu is less than 2^-119 on one side, and 2^t vanishes beside 1 on the other.
  const __m512 from = _mm512_max_ps(all(-88.0f), x);
  const __m512 t = _mm512_max_ps(all(-64.0f), _mm512_mul_ps(from, all(-1.44269504089f)));
  const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(t, n);
  __m512 p = all(0x1.c3f760p-5f);
  p = _mm512_fmadd_ps(p, f, all(0x1.f0de1ap-3f));
  p = _mm512_fmadd_ps(p, f, all(0x1.62f31ap-1f));
  p = _mm512_fmadd_ps(p, f, all(0x1.fff692p-1f));
  const __m512 sum = _mm512_add_ps(_mm512_scalef_ps(p, n), all(1.0f));
  return _mm512_mul_ps(from, _mm512_rcp14_ps(sum));
}

}  // namespace

template <>
void silu_rows(const float* x, std::int64_t n, BFloat16* y) {
  for (std::int64_t i = 0; i < n; i += 16) {
    const auto some = static_cast<__mmask16>(n - i < 16 ? (1u << (n - i)) - 1 : 0xFFFFu);
    const __m256bh rounded = _mm512_cvtneps_pbh(silu_of(_mm512_maskz_loadu_ps(some, x + i)));
    _mm256_mask_storeu_epi16(y + i, some, (__m256i)rounded);
  }
}

}  // namespace ridge
#endif
