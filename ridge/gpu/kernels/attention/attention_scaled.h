#pragma once

// Attention of f32 tensors in tf32's precision, by the kernels of gpu/sm90/ for f16: queries, keys
// and values share one scale, the gradient that comes in has its own.

#include "ridge/gpu/kernels/attention/attention_backward.h"
#include "ridge/gpu/kernels/attention/attention_operands.h"
#include "ridge/gpu/kernels/attention/flash.h"
#include "ridge/gpu/kernels/quantize/quantize.h"

namespace ridge::gpu {

inline FlashShape scaled_shape(const AttentionHeads& op, Types in) {
  FlashShape shape = flash_shape(op, in);
  shape.dtype = DType::f16;
  return shape;
}

inline bool scaled_supports(const AttentionHeads& op, const GpuPrepare& prepare) {
  const std::int64_t stride = op.q_dim() + 2 * op.kv_dim();
  return prepare.choice.scaled && prepare.gpu.card.is_sm90() && prepare.in[0].dtype == DType::f32 &&
         flash_sm90_supports(
             scaled_shape(op, prepare.in),
             FlashOperands{.q_stride = stride, .k_stride = stride, .v_stride = stride});
}

// Queries, keys and values in f16, side by side, in the workspace.
class HalfHeads {
 public:
  HalfHeads(const AttentionHeads& op, const AttentionLayout& at, GpuPrepare& prepare)
      : op_(op), at_(at), shape_(scaled_shape(op, prepare.in)) {
    if (op.rope_theta != 0.0f)
      table_ = prepare.gpu.rotations->get(prepare.gpu, op.rope_theta, op.head_dim / 2, shape_.seq);
    own_ = reserve(prepare.workspace, quantize_workspace(prepare.gpu));
    scale_ = reserve(prepare.workspace, sizeof(float));
    halves_ = reserve(prepare.workspace, static_cast<std::size_t>(rows() * columns()) * 2);
  }

  const FlashShape& shape() const { return shape_; }
  std::int64_t rows() const { return shape_.batch * shape_.seq; }
  const float* rotations() const { return table_ ? table_->table.data<float>() : nullptr; }
  std::byte* own_workspace(void* workspace) const { return at(workspace, own_); }

  // `first` is the index of the first of q, k and v among the operands.
  ScaledFlash operator()(const Context& gpu, const Launch& call, std::size_t first) const {
    const auto from = [&](const HeadColumns& x) {
      return call.in<float>(first + x.operand) + x.offset;
    };
    const ScaledHeads heads{.q = from(at_.q),
                            .k = from(at_.k),
                            .v = from(at_.v),
                            .q_stride = at_.q.stride,
                            .k_stride = at_.k.stride,
                            .v_stride = at_.v.stride,
                            .q_columns = static_cast<int>(op_.q_dim()),
                            .kv_columns = static_cast<int>(op_.kv_dim()),
                            .head_dim = static_cast<int>(op_.head_dim),
                            .seq = static_cast<int>(shape_.seq),
                            .rotations = rotations()};
    auto* const scale = reinterpret_cast<float*>(at(call.workspace, scale_));
    auto* const halves = reinterpret_cast<Float16*>(at(call.workspace, halves_));
    quantize_heads(gpu, rows(), heads, own_workspace(call.workspace), scale, halves);
    return {.shape = shape_,
            .operands = {.q = halves,
                         .k = halves + op_.q_dim(),
                         .v = halves + op_.q_dim() + op_.kv_dim(),
                         .q_stride = columns(),
                         .k_stride = columns(),
                         .v_stride = columns()},
            .scale = scale};
  }

  static std::byte* at(void* workspace, std::size_t offset) {
    return static_cast<std::byte*>(workspace) + offset;
  }

 private:
  std::int64_t columns() const { return op_.q_dim() + 2 * op_.kv_dim(); }

  AttentionHeads op_;
  AttentionLayout at_;
  FlashShape shape_;
  std::shared_ptr<const Rotations> table_;
  std::size_t own_ = 0, scale_ = 0, halves_ = 0;  // where they start in the workspace
};

inline KernelPtr scaled_attention(FlashForward kernel, const Attention& op,
                                  const AttentionLayout& at, GpuPrepare& prepare) {
  const HalfHeads halves(op, at, prepare);
  return make_kernel([kernel, halves, &gpu = prepare.gpu](const Launch& call) {
    flash_sm90_scaled_forward(kernel, halves(gpu, call, 0), call.out<float>(0), call.out<float>(1),
                              gpu.stream);
  });
}

// `first` is the index of the first of q, k and v among the operands.
inline KernelPtr scaled_attention_grad(const AttentionGrad& op, const AttentionLayout& at,
                                       std::size_t first, GpuPrepare& prepare) {
  const HalfHeads halves(op, at, prepare);
  const FlashShape& flash = halves.shape();
  const AttentionShape shape = attention_shape(op, flash.batch, flash.seq);
  const std::int64_t sums = halves.rows() * op.n_heads, columns = op.q_dim();
  const std::size_t delta = reserve(prepare.workspace, static_cast<std::size_t>(sums) * 4);
  const std::size_t dy_scale = reserve(prepare.workspace, sizeof(float));
  const std::size_t dy =
      reserve(prepare.workspace, static_cast<std::size_t>(sums * op.head_dim) * 2);
  const std::size_t stats =
      reserve(prepare.workspace, flash_sm90_workspace(FlashBackward::separate, flash));
  return make_kernel([=, &gpu = prepare.gpu](const Launch& call) {
    auto* const deltas = reinterpret_cast<float*>(HalfHeads::at(call.workspace, delta));
    auto* const scale = reinterpret_cast<float*>(HalfHeads::at(call.workspace, dy_scale));
    auto* const half_dy = reinterpret_cast<Float16*>(HalfHeads::at(call.workspace, dy));
    const auto of_queries = [&](const float* x) { return head_rows(x, columns, op.head_dim); };
    launch(gpu, attention_delta<float>, dim3(blocks_for(sums * delta_lanes, delta_threads)),
           dim3(delta_threads), 0, of_queries(call.in<float>(0)), of_queries(call.in<float>(1)),
           deltas, shape, static_cast<int*>(nullptr), std::int64_t{0});
    quantize_rows(gpu, halves.rows(), columns, call.in<float>(0),
                  halves.own_workspace(call.workspace), scale, half_dy);
    const ScaledFlash operands = halves(gpu, call, first);
    const auto result = [&](const HeadColumns& x) { return call.out<float>(x.operand); };
    const FlashGradients gradients = flash_gradients(at, result, halves.rotations());
    flash_sm90_scaled_backward(operands, call.in<float>(2), deltas, half_dy, scale, gradients,
                               HalfHeads::at(call.workspace, stats), gpu.stream);
  });
}

}  // namespace ridge::gpu
