#pragma once

// Attention by the vendor's library, which knows no rotary embedding: queries and keys are rotated
// before it, and their gradients back after it.

#include <memory>

#include "ridge/gpu/kernels/attention/attention_operands.h"
#include "ridge/gpu/vendor/dnn.h"

namespace ridge::gpu {

template <class T>
KernelPtr fused_attention(const Attention& op, const AttentionLayout& at, GpuPrepare& prepare) {
  const FlashShape shape = flash_shape(op, prepare.in);
  const RotaryPass<T, T> rotary(op, shape.batch, shape.seq, prepare);
  const std::shared_ptr<FusedAttention> kernel =
      prepare.gpu.dnn->attention(prepare.in[0].dtype, shape, rotated_strides(at, rotary));
  const std::size_t memory = reserve(prepare.workspace, kernel->workspace());
  return make_kernel([=, &gpu = prepare.gpu](const Launch& call) {
    auto operand = [&](const HeadColumns& x) { return call.in<T>(x.operand); };
    kernel->run(gpu.stream, flash_operands(at, op, gpu, rotary, operand, call.workspace),
                call.outputs[0], call.out<float>(1),
                static_cast<std::byte*>(call.workspace) + memory);
  });
}

// `first` is the index of the first of q, k and v among the operands.
template <class T>
KernelPtr fused_attention_grad(const AttentionGrad& op, const AttentionLayout& at,
                               std::size_t first, GpuPrepare& prepare) {
  const FlashShape shape = flash_shape(op, prepare.in);
  const RotaryPass<T, T> rotary(op, shape.batch, shape.seq, prepare);
  const FlashGradients strides{
      .dq_stride = at.q.stride, .dk_stride = at.k.stride, .dv_stride = at.v.stride};
  const std::shared_ptr<FusedAttentionGrad> kernel = prepare.gpu.dnn->attention_grad(
      prepare.in[0].dtype, shape, rotated_strides(at, rotary), strides, prepare.gpu.deterministic);
  const std::size_t memory = reserve(prepare.workspace, kernel->workspace());
  return make_kernel([=, &gpu = prepare.gpu](const Launch& call) {
    auto operand = [&](const HeadColumns& x) { return call.in<T>(first + x.operand); };
    auto result = [&](const HeadColumns& x) { return call.out<T>(x.operand) + x.offset; };
    FlashGradients gradients = strides;
    gradients.dq = result(at.q);
    gradients.dk = result(at.k);
    gradients.dv = result(at.v);
    kernel->run(gpu.stream, flash_operands(at, op, gpu, rotary, operand, call.workspace),
                call.inputs[1], call.in<float>(2), call.inputs[0], gradients,
                static_cast<std::byte*>(call.workspace) + memory);
    rotary.back(gpu, head_rows(result(at.q), at.q.stride, op.head_dim),
                head_rows(result(at.k), at.k.stride, op.head_dim));
  });
}

}  // namespace ridge::gpu
