#pragma once

// The operands of attention as kernels that take them by strides see them.

#include "ridge/gpu/kernels/attention/attention_candidates.h"
#include "ridge/gpu/kernels/attention/attention_rotary.h"

namespace ridge::gpu {

// The queries and keys rotated, where they must be, and the values where they are.
template <class T, class Operand>
FlashOperands flash_operands(const AttentionLayout& at, const AttentionHeads& op,
                             const Context& gpu, const RotaryPass<T, T>& rotary,
                             const Operand& operand, void* workspace) {
  auto rows = [&](const HeadColumns& x) {
    return head_rows(operand(x) + x.offset, x.stride, op.head_dim);
  };
  const auto rotated = rotary(gpu, rows(at.q), rows(at.k), workspace);
  return {
      .q = rotated.q.data,
      .k = rotated.k.data,
      .v = operand(at.v) + at.v.offset,
      .q_stride = rotated.q.stride,
      .k_stride = rotated.k.stride,
      .v_stride = at.v.stride,
      .rotation = rotary.rotates() ? reinterpret_cast<const float*>(rotary.rotations()) : nullptr};
}

// Their strides.
template <class T>
FlashOperands rotated_strides(const AttentionLayout& at, const RotaryPass<T, T>& rotary) {
  return {.q_stride = rotary.q_stride(at.q.stride),
          .k_stride = rotary.k_stride(at.k.stride),
          .v_stride = at.v.stride};
}

// Where the gradients of queries, keys and values go: `result` gives the output of each.
template <class Result>
FlashGradients flash_gradients(const AttentionLayout& at, const Result& result,
                               const float* rotation) {
  return {.dq = result(at.q) + at.q.offset,
          .dk = result(at.k) + at.k.offset,
          .dv = result(at.v) + at.v.offset,
          .dq_stride = at.q.stride,
          .dk_stride = at.k.stride,
          .dv_stride = at.v.stride,
          .rotation = rotation};
}

}  // namespace ridge::gpu
