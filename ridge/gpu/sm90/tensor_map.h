#pragma once

#include <cuda.h>

#include <cstdint>

#include "ridge/base/dtype.h"

namespace ridge::gpu::sm90 {

// A matrix of heads, bf16 or f16, in global memory as the bulk copy engine sees it,
// four-dimensional, inner first: column within the head, position, head, batch. Boxes are
// `box_rows` positions of min(head_dim, 64) columns, swizzled in shared memory as wgmma wants them.
// Rows past the end of the sequence are read as zero and not written.
CUtensorMap head_map(DType dtype, const void* base, std::int64_t batch, std::int64_t seq,
                     std::int64_t heads, std::int64_t head_dim, std::int64_t stride, int box_rows);

// A row-major bf16 matrix as the bulk copy engine sees it, column first. Boxes are 64 rows of 64
// columns, swizzled in shared memory as wgmma wants them. What lies outside the matrix is read as
// zero and not written. The address must be a multiple of 16 bytes, `columns` of 8.
inline constexpr int box_extent = 64;
CUtensorMap matrix_map(const void* base, std::int64_t rows, std::int64_t columns);

// The number of multiprocessors of the current device.
int multiprocessors();

}  // namespace ridge::gpu::sm90
