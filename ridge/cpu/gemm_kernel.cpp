#include "ridge/cpu/gemm_kernel.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

namespace ridge {
namespace {

typedef float Vector __attribute__((vector_size(4 * lanes)));

Vector load_vector(const float* p) {
  Vector v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

void store_vector(float* p, Vector v) { std::memcpy(p, &v, sizeof v); }

struct MultiplyFloats {
  static Vector add(Vector sum, float a, Vector b) { return sum + a * b; }
  static void store_rounded(BFloat16* p, Vector v) {
    for (int i = 0; i < lanes; ++i) p[i] = BFloat16(v[i]);
  }
};

#if defined(__AVX512BF16__)
struct MultiplyPairs {
  static Vector add(Vector sum, float a, Vector b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_ps(a), (__m512bh)b);
  }
  // To nearest even, NaN to NaN. Both instructions take denormals for 0.
  static void store_rounded(BFloat16* p, Vector v) {
    const __m256bh half = _mm512_cvtneps_pbh((__m512)v);
    std::memcpy(static_cast<void*>(p), &half, sizeof half);
  }
};
#endif

// Row i of a block that is narrower than its vectors.
[[gnu::noinline]] void store_part(const float* row, const BlockProduct& block, std::int64_t i) {
  float* c = block.c + i * block.c_stride;
  for (std::int64_t j = 0; j < block.columns; ++j) {
    const float sum = block.accumulate ? row[j] + c[j] : row[j];
    if (block.rounded)
      block.rounded[i * block.rounded_stride + j] = BFloat16(sum);
    else
      c[j] = sum;
  }
}

// The sums stay in registers because every loop over them is unrolled.
template <class Multiply, int Rows, int Vectors>
void multiply(const BlockProduct& block) {
  // What is added to or overwritten in the end is fetched meanwhile.
  if (block.rounded)
#pragma GCC unroll 14
    for (int i = 0; i < Rows; ++i) __builtin_prefetch(block.rounded + i * block.rounded_stride, 1);
  if (!block.rounded || block.accumulate)
#pragma GCC unroll 14
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < Vectors; ++j)
        __builtin_prefetch(block.c + i * block.c_stride + j * lanes, 1);
  Vector sums[Rows][Vectors] = {};
  const float *a = block.a, *b = block.b;
  const std::int64_t steps = block.steps, b_stride = block.b_stride;
  for (std::int64_t step = 0; step < steps; ++step, a += lanes, b += b_stride) {
    Vector columns[Vectors];
#pragma GCC unroll 2
    for (int j = 0; j < Vectors; ++j) columns[j] = load_vector(b + j * lanes);
#pragma GCC unroll 14
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < Vectors; ++j) sums[i][j] = Multiply::add(sums[i][j], a[i], columns[j]);
  }
  const bool whole = block.columns == Vectors * lanes;
#pragma GCC unroll 14
  for (int i = 0; i < Rows; ++i) {
    float* c = block.c + i * block.c_stride;
    if (whole) {
#pragma GCC unroll 2
      for (int j = 0; j < Vectors; ++j) {
        const Vector sum = block.accumulate ? sums[i][j] + load_vector(c + j * lanes) : sums[i][j];
        if (block.rounded)
          Multiply::store_rounded(block.rounded + i * block.rounded_stride + j * lanes, sum);
        else
          store_vector(c + j * lanes, sum);
      }
    } else {
      Vector row[Vectors];
#pragma GCC unroll 2
      for (int j = 0; j < Vectors; ++j) row[j] = sums[i][j];
      store_part(reinterpret_cast<const float*>(row), block, i);
    }
  }
}

using Function = void (*)(const BlockProduct&);

template <class Multiply, int... Row>
constexpr auto functions(std::integer_sequence<int, Row...>) {
  return std::array{
      std::array<Function, 2>{multiply<Multiply, Row + 1, 1>, multiply<Multiply, Row + 1, 2>}...};
}

template <class Multiply>
void dispatch(const BlockProduct& block) {
  static constexpr auto table =
      functions<Multiply>(std::make_integer_sequence<int, static_cast<int>(block_rows)>());
  table[static_cast<std::size_t>(block.rows - 1)][block.columns > lanes](block);
}

}  // namespace

void multiply_block(Words words, const BlockProduct& block) {
#if defined(__AVX512BF16__)
  if (words == Words::bf16_pairs) return dispatch<MultiplyPairs>(block);
#endif
  (void)words;
  dispatch<MultiplyFloats>(block);
}

}  // namespace ridge
