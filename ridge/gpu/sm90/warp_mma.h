#pragma once

// Products by one warp, on matrices that it loads from shared memory into registers.

#include <cstdint>
#include <type_traits>

#include "ridge/base/dtype.h"

namespace ridge::gpu::ptx {

// Four 8 x 8 matrices of 16-bit elements; lane i gives the address in shared memory of row i % 8 of
// matrix i / 8. Lane i gets two elements of row i / 4 of each, those of columns 2 (i % 4) and the
// next.
__device__ inline void load_matrices(std::uint32_t (&x)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(row)
               : "memory");
}

// The same, each matrix transposed as it is loaded.
__device__ inline void load_matrices_transposed(std::uint32_t (&x)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(row)
               : "memory");
}

// d[16, 8] += a[16, 16] b[16, 8] of T; d and a lie as wgmma.h says of its accumulators and of an A
// operand, of one warp. b0 holds rows 2 (i % 4) and the next of column i / 4, b1 those 8 below.
template <class T>
__device__ inline void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
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

}  // namespace ridge::gpu::ptx
