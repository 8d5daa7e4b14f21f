#pragma once

// Attention within windows by tensor cores, from ridge/gpu/sm90.

#include <cstdint>
#include <string>

#include "ridge/base/dtype.h"
#include "ridge/gpu/device/context.h"
#include "ridge/ops/window_attention.h"

namespace ridge::gpu {

// What a kernel needs to know of WindowAttention.
struct WindowShape {
  WindowGrid grid;
  int windows = 0;  // of the whole batch
  int n_heads = 0, head_dim = 0;
  float scale = 1;

  WindowShape(const WindowHeads& heads, const Shape& y)
      : grid(heads, y),
        windows(static_cast<int>(y[0]) * grid.windows()),
        n_heads(static_cast<int>(heads.n_heads)),
        head_dim(static_cast<int>(y[3] / heads.n_heads)),
        scale(heads.scale) {}
};

// All that the times of its kernels depend on:
// "window_attention bf16[32 x 56 x 56, 3 heads of 32], windows of 7 x 7 shifted by 3, 3".
std::string window_work(DType dtype, const WindowShape& shape);

// Whether there is a kernel for it: on sm90, for 16 bits, heads of 32 columns and windows of up to
// 64 positions.
bool window_attention_sm90_supports(const Context& gpu, DType dtype, const WindowShape& shape);

// As ops/window_attention.h says; qkv and y at multiples of 16 bytes. Enqueues; DeviceError.
void window_attention_sm90(const Context& gpu, DType dtype, const WindowShape& shape,
                           const void* qkv, const void* bias, void* y);

}  // namespace ridge::gpu
