#pragma once

#include <cuda.h>

#include <cstdint>
#include <initializer_list>

#include "ridge/base/dtype.h"

namespace ridge::gpu::sm90 {

// A matrix of heads, bf16 or f16, in global memory as the bulk copy engine sees it,
// four-dimensional, inner first: column within the head, position, head, batch. Boxes are
// `box_rows` positions of min(head_dim, 64) columns, swizzled in shared memory as wgmma wants them.
// Rows past the end of the sequence are read as zero and not written.
CUtensorMap head_map(DType dtype, const void* base, std::int64_t batch, std::int64_t seq,
                     std::int64_t heads, std::int64_t head_dim, std::int64_t stride, int box_rows);

// A row-major matrix of 16-bit elements as the bulk copy engine sees it, column first. Boxes are
// `box_rows` rows of 64 columns, swizzled in shared memory as wgmma wants them. What lies outside
// the matrix is read as zero and not written. The address must be a multiple of 16 bytes, `columns`
// of 8.
inline constexpr int box_extent = 64;
CUtensorMap matrix_map(const void* base, std::int64_t rows, std::int64_t columns,
                       int box_rows = box_extent);

// A matrix in components (kernels/product/split_bf16.h): column, row, component. Boxes are 64 rows
// of 64 columns of a component; otherwise as above, for any number of columns.
CUtensorMap split_map(const void* base, std::int64_t rows, std::int64_t columns);

// A dense tensor of 16-bit elements, its innermost dimension first, as the bulk copy engine sees
// it, in boxes whose rows are 64 or 32 elements long and swizzled as wgmma wants them. What lies
// outside is read as zero and not written. The address must be a multiple of 16 bytes, the
// innermost extent of 8.
CUtensorMap box_map(const void* base, std::initializer_list<std::int64_t> sizes,
                    std::initializer_list<int> box);

// Images of 16-bit elements as the bulk copy engine gathers windows from them: boxes of `pixels`
// windows, in the order of the convolution's result, with `channels` (64 or 32) of the element that
// is as far into each window as a load says. Beyond the edges there are zeros.
struct WindowGeometry {
  std::int64_t n, h, w, c;
  std::int64_t row_bytes, pixel_bytes;  // from row to row, and from pixel to pixel
  std::int64_t kernel[2], stride[2], padding[2], dilation[2];  // down, across
};
CUtensorMap window_map(const void* base, const WindowGeometry& image, int pixels, int channels);

// The number of multiprocessors of the current device.
int multiprocessors();

}  // namespace ridge::gpu::sm90
