#pragma once

// What the candidates of attention and of its gradient have in common.

#include <string>
#include <string_view>

#include "ridge/gpu/device/candidates.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/device/problems.h"
#include "ridge/gpu/vendor/dnn.h"
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

// Whether the vendor's library is there and may have a kernel for these operands.
bool library_supports_attention(const AttentionHeads& op, const GpuPrepare& prepare);

// "attention bf16[16 x 512, 16/8 heads of 64]", and with all else that its time depends on.
std::string attention_work(std::string_view name, const AttentionHeads& op,
                           const GpuPrepare& prepare);
std::string attention_key(std::string_view name, const AttentionHeads& op, bool packed,
                          const GpuPrepare& prepare);

// What candidates are asked about Attention, or AttentionGrad.
template <class Op>
struct AttentionWork {
  const Op& op;
  const GpuPrepare& prepare;
  bool packed;  // queries, keys and values are one operand
  AttentionLayout layout;

  AttentionWork(const Op& attention, const GpuPrepare& of_op, bool packed_operands)
      : op(attention),
        prepare(of_op),
        packed(packed_operands),
        layout(attention_layout(attention, packed_operands)) {}

  DType dtype() const { return prepare.in[0].dtype; }
  std::string key() const { return attention_key(Op::name, op, packed, prepare); }
  std::string work() const { return attention_work(Op::name, op, prepare); }
};

}  // namespace ridge::gpu
