#pragma once

// Tensors in few bits with a scale, for kernels that make them for themselves: see ops/quantize.h.
// All pointers are the device's.

#include <cstddef>
#include <cstdint>

#include "ridge/base/dtype.h"
#include "ridge/gpu/device/context.h"
#include "ridge/gpu/vendor/blas.h"

namespace ridge::gpu {

// What the two below want for themselves, in bytes.
std::size_t quantize_workspace(const Context& gpu);

// q[rows, columns] and its scale, of x.
void quantize_rows(const Context& gpu, std::int64_t rows, std::int64_t columns, const float* x,
                   void* workspace, float* scale, Float16* q);

// Rows of queries, keys and values of attention, the first two rotated by the rotary embedding
// before they are rounded.
struct ScaledHeads {
  const float *q, *k, *v;
  std::int64_t q_stride, k_stride, v_stride;  // from row to row
  int q_columns, kv_columns;                  // of all heads
  int head_dim, seq;
  const float* rotations;  // [seq, head_dim / 2] pairs (cos, sin); null: as they are
};

// q[rows, q_columns + 2 kv_columns], the three side by side, and their one scale.
void quantize_heads(const Context& gpu, std::int64_t rows, const ScaledHeads& heads,
                    void* workspace, float* scale, Float16* q);

}  // namespace ridge::gpu
