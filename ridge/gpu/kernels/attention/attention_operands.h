#pragma once

// The operands of attention as kernels that take them by strides see them.

#include "ridge/gpu/kernels/attention/attention_rotary.h"
#include "ridge/gpu/kernels/attention/attention_ways.h"

namespace ridge::gpu {

// The queries and keys turned, where they must be, and the values where they are.
template <class T, class Operand>
FlashOperands flash_operands(const AttentionLayout& at, const AttentionHeads& op,
                             const Context& gpu, const RotaryPass<T, T>& turn,
                             const Operand& operand, void* workspace) {
  auto rows = [&](const HeadColumns& x) {
    return head_rows(operand(x) + x.offset, x.stride, op.head_dim);
  };
  const auto turned = turn(gpu, rows(at.q), rows(at.k), workspace);
  return {.q = turned.q.data,
          .k = turned.k.data,
          .v = operand(at.v) + at.v.offset,
          .q_stride = turned.q.stride,
          .k_stride = turned.k.stride,
          .v_stride = at.v.stride,
          .rotation = turn.turns() ? reinterpret_cast<const float*>(turn.rotations()) : nullptr};
}

// Their strides.
template <class T>
FlashOperands turned_strides(const AttentionLayout& at, const RotaryPass<T, T>& turn) {
  return {.q_stride = turn.q_stride(at.q.stride),
          .k_stride = turn.k_stride(at.k.stride),
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
