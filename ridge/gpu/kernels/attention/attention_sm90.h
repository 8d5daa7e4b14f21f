#pragma once

// Attention by the kernels of gpu/sm90/, on the cards that have what these need.

#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/kernels/attention/attention_operands.h"
#include "ridge/gpu/kernels/attention/flash.h"
#include "ridge/ops/attention.h"

namespace ridge::gpu {

// Whether they take these operands, which the executor aligns well enough.
inline bool sm90_supports(const AttentionHeads& op, const AttentionLayout& at,
                          const GpuPrepare& prepare) {
  const FlashOperands operands{
      .q_stride = at.q.stride, .k_stride = at.k.stride, .v_stride = at.v.stride};
  return prepare.gpu.card.is_sm90() && is_16_bit(prepare.in[0].dtype) && at.q.offset % 8 == 0 &&
         at.k.offset % 8 == 0 && at.v.offset % 8 == 0 &&
         flash_sm90_supports(flash_shape(op, prepare.in), operands);
}

template <class T>
KernelPtr sm90_attention(FlashForward kernel, const Attention& op, const AttentionLayout& at,
                         GpuPrepare& prepare) {
  const FlashShape shape = flash_shape(op, prepare.in);
  const RotaryPass<T, T> rotary(op, shape.batch, shape.seq, prepare, rotates(kernel));
  return make_kernel([=, &gpu = prepare.gpu](const Launch& call) {
    auto operand = [&](const HeadColumns& x) { return call.in<T>(x.operand); };
    flash_sm90_forward(kernel, shape, flash_operands(at, op, gpu, rotary, operand, call.workspace),
                       call.outputs[0], call.out<float>(1), gpu.stream);
  });
}

// `first` is the index of the first of q, k and v among the operands.
template <class T>
KernelPtr sm90_attention_grad(FlashBackward kernel, const AttentionGrad& op,
                              const AttentionLayout& at, std::size_t first, GpuPrepare& prepare) {
  const FlashShape shape = flash_shape(op, prepare.in);
  const RotaryPass<T, T> rotary(op, shape.batch, shape.seq, prepare, rotates(kernel));
  constexpr std::size_t alignment = 256;
  const std::size_t sums =
      reserve(prepare.workspace, flash_sm90_workspace(kernel, shape) + alignment);
  return make_kernel([=, &gpu = prepare.gpu](const Launch& call) {
    auto operand = [&](const HeadColumns& x) { return call.in<T>(first + x.operand); };
    auto result = [&](const HeadColumns& x) { return call.out<T>(x.operand); };
    const FlashGradients gradients =
        flash_gradients(at, result, reinterpret_cast<const float*>(rotary.rotations()));
    const auto memory = reinterpret_cast<std::uintptr_t>(call.workspace) + sums;
    auto* const aligned = reinterpret_cast<void*>((memory + alignment - 1) / alignment * alignment);
    flash_sm90_backward(kernel, shape, flash_operands(at, op, gpu, rotary, operand, call.workspace),
                        call.inputs[1], call.in<float>(2), call.inputs[0], gradients, aligned,
                        gpu.stream);
  });
}

}  // namespace ridge::gpu
