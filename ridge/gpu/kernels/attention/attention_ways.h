#pragma once

// Who computes attention.

#include <functional>
#include <string_view>

#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/kernels/attention/flash.h"
#include "ridge/ops/attention.h"

namespace ridge::gpu {

inline FlashShape flash_shape(const AttentionHeads& op, Types in) {
  return {.batch = in[0].shape[0],
          .seq = in[0].shape[1],
          .n_heads = op.n_heads,
          .n_kv_heads = op.n_kv_heads,
          .head_dim = op.head_dim,
          .scale = op.scale,
          .causal = op.causal,
          .dtype = in[0].dtype};
}

using PrepareKernel = std::function<KernelPtr(GpuPrepare&)>;

// Whichever of our own kernel and the library's the tuner finds faster; our own without a tuner, or
// where the library is not there or has nothing for these operands.
KernelPtr fastest_attention(std::string_view name, const AttentionHeads& op, bool packed,
                            GpuPrepare& prepare, const PrepareKernel& own,
                            const PrepareKernel& fused);

}  // namespace ridge::gpu
