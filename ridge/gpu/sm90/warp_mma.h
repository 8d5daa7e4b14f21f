#pragma once

// The operands of a warp's products, from shared memory to registers: a and b as
// ridge/gpu/device/matrix_instructions.h says of mma().

#include <cstdint>

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

}  // namespace ridge::gpu::ptx
