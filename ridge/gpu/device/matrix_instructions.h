#pragma once

// The instructions by which a warp multiplies small matrices, each as a function of what one lane
// holds. All lanes of a warp must call it. Which of them a target has is known when its code is
// compiled: matrix_unit.h chooses. Layouts are those of NVIDIA's PTX ISA, "Matrix Fragments for
// mma.m16n8k16" and "mma.m16n8k8", of AMD's CDNA2 instruction set architecture, "Matrix Arithmetic
// Instructions", and of its RDNA3 instruction set architecture, "Wave Matrix Multiply Accumulate".

#include <cstdint>
#include <type_traits>

#include "ridge/base/dtype.h"

namespace ridge::gpu {

enum class MatrixInstructions : std::uint8_t { none, mma, mfma, wmma };

#if defined(__HIP__)

#if defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__)

inline constexpr MatrixInstructions matrix_instructions = MatrixInstructions::mfma;

// d[16, 16] += a[16, 16] b[16, 16]. Lane i holds columns 4 (i / 16) to the third behind it of row
// i % 16 of a, the same rows of column i % 16 of b, and of d the same rows of column i % 16.
template <class T>
__device__ inline void mfma(float (&d)[4], std::uint64_t a, std::uint64_t b) {
  using Sums = __attribute__((__vector_size__(16))) float;
  Sums sums = {d[0], d[1], d[2], d[3]};
  if constexpr (std::is_same_v<T, BFloat16>) {
    using Elements = __attribute__((__vector_size__(8))) short;
    sums = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(
        __builtin_bit_cast(Elements, a), __builtin_bit_cast(Elements, b), sums, 0, 0, 0);
  } else {
    using Elements = __attribute__((__vector_size__(8))) _Float16;
    sums = __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(Elements, a),
                                                 __builtin_bit_cast(Elements, b), sums, 0, 0, 0);
  }
  for (int i = 0; i < 4; ++i) d[i] = sums[i];
}

// d[16, 16] += a[16, 4] b[4, 16] in f32. Lane i holds column i / 16 of row i % 16 of a, and that
// row of column i % 16 of b; d lies as above.
__device__ inline void mfma(float (&d)[4], float a, float b) {
  using Sums = __attribute__((__vector_size__(16))) float;
  const Sums sums =
      __builtin_amdgcn_mfma_f32_16x16x4f32(a, b, Sums{d[0], d[1], d[2], d[3]}, 0, 0, 0);
  for (int i = 0; i < 4; ++i) d[i] = sums[i];
}

#elif (defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || \
       defined(__gfx1103__)) &&                                                \
    __AMDGCN_WAVEFRONT_SIZE == 32

inline constexpr MatrixInstructions matrix_instructions = MatrixInstructions::wmma;

// d[16, 16] += a[16, 16] b[16, 16]. Lane i holds row i % 16 of a and that column of b, each of them
// twice in the warp; of d it holds rows 2 j + i / 16 of column i % 16.
template <class T>
__device__ inline void wmma(float (&d)[8], const std::uint64_t (&a)[4],
                            const std::uint64_t (&b)[4]) {
  using Sums = __attribute__((__vector_size__(32))) float;
  Sums sums;
  for (int i = 0; i < 8; ++i) sums[i] = d[i];
  if constexpr (std::is_same_v<T, BFloat16>) {
    using Elements = __attribute__((__vector_size__(32))) short;
    sums = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(__builtin_bit_cast(Elements, a),
                                                       __builtin_bit_cast(Elements, b), sums);
  } else {
    using Elements = __attribute__((__vector_size__(32))) _Float16;
    sums = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(Elements, a),
                                                      __builtin_bit_cast(Elements, b), sums);
  }
  for (int i = 0; i < 8; ++i) d[i] = sums[i];
}

#else
inline constexpr MatrixInstructions matrix_instructions = MatrixInstructions::none;
#endif

#else

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
inline constexpr MatrixInstructions matrix_instructions = MatrixInstructions::mma;
#else
inline constexpr MatrixInstructions matrix_instructions = MatrixInstructions::none;
#endif

// d[16, 8] += a[16, 16] b[16, 8] of T, two elements a register. Lane i holds rows i / 4 (a[0],
// a[2], d[0], d[1]) and 8 below (a[1], a[3], d[2], d[3]): of a columns 2 (i % 4) and the next, in
// a[2] and a[3] those 8 behind; of d columns 2 (i % 4) and the next. Of b it holds column i / 4:
// rows 2 (i % 4) and the next in b0, those 8 below in b1.
template <class T>
__device__ inline void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                           std::uint32_t b1) {
  if constexpr (std::is_same_v<T, BFloat16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// d[16, 8] += a[16, 8] b[8, 8] of f32 rounded by round_to_tf32(). d lies as above; a[0] and a[1]
// are column i % 4 of the two rows, a[2] and a[3] that 4 behind; b0 is row i % 4 of column i / 4,
// b1 that 4 below.
__device__ inline void mma_tf32(float (&d)[4], const float (&a)[4], float b0, float b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}

// The nearest number with 10 bits behind the point.
__device__ inline float round_to_tf32(float x) {
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
}

#endif

}  // namespace ridge::gpu
