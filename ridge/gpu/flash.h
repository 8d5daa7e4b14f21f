#pragma once

#include <cstddef>
#include <cstdint>

#include "ridge/base/dtype.h"
#include "ridge/gpu/context.h"

namespace ridge::gpu {

// Flash attention for Hopper GPUs: operands of 16 bits, float accumulation and softmax, and no
// matrix of scores in memory. y = softmax(scale q k^T + mask) v for each head; query heads h
// n_kv_heads / n_heads share key head kv without it being repeated. Queries and keys are of one
// sequence.
struct FlashShape {
  std::int64_t batch = 0, seq = 0;
  std::int64_t n_heads = 0, n_kv_heads = 0;  // n_heads is a multiple of n_kv_heads
  std::int64_t head_dim = 0;                 // 32, 64 or 128
  float scale = 1;
  bool causal = false;
  DType dtype = DType::bf16;  // of all operands and results but lse; or f16
};

// On the device. Head h of position s, counted through the batch (b * seq + s), is head_dim
// contiguous elements at element s * stride + h * head_dim; so columns of one packed matrix will
// do.
struct FlashOperands {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  // The table [seq, head_dim / 2] of float pairs (cos, sin) by which a rotary embedding turns
  // columns (2i, 2i + 1) of q and k on their way in; only where flash90_turns().
  const float* rotation = nullptr;
};

// Where the backward pass writes (overwrites), laid out like FlashOperands. With a `rotation`, the
// table by which q and k were turned, beforehand or on their way in, dq and dk are those of q and k
// before it.
struct FlashGradients {
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  std::int64_t dq_stride = 0, dk_stride = 0, dv_stride = 0;
  const float* rotation = nullptr;
};

// Whether the kernels take this: a head_dim they are built for, pointers at multiples of 16 bytes,
// strides of multiples of 8 elements.
bool flash90_supports(const FlashShape& shape, const FlashOperands& operands);
bool flash90_supports(const FlashShape& shape, const FlashGradients& gradients);

// Whether the kernels turn q and k themselves, because that costs less than a pass before them:
// where sequences are so short that no row is turned often.
bool flash90_turns(const FlashShape& shape);

// y: [batch, seq, n_heads * head_dim]. lse: float [batch, n_heads, seq], the natural logarithm
// of the sum over keys of exp(scale q.k). Enqueues; throws DeviceError.
void flash90_forward(const FlashShape& shape, const FlashOperands& operands, void* y, float* lse,
                     Stream stream);

// The backward pass, from dy and what the forward pass wrote (both laid out as y). Needs
// `workspace` of the size below, at a multiple of 256 bytes. `deterministic`: dq is summed over
// keys in a fixed order, so that reruns agree bit for bit; short sequences (up to 1,024 at
// head_dim 128, 2,048 at 64) always are, longer ones take up to a third longer for it.
std::size_t flash90_backward_workspace(const FlashShape& shape);
void flash90_backward(const FlashShape& shape, const FlashOperands& operands, const void* y,
                      const float* lse, const void* dy, const FlashGradients& gradients,
                      void* workspace, bool deterministic, Stream stream);

// The same of f32 tensors whose values are in f16 with a scale: elements of q, k and v stand for
// *scale times themselves, those of dy for *dy_scale times. y and the gradients are f32. Rotations
// come before. Probabilities and gradients of scores are rounded to f16 where tf32 would round them
// too: scaled so that none overflows and the largest of a tile keep all 11 bits.
struct ScaledFlash {
  FlashShape shape;
  FlashOperands operands;
  const float* scale = nullptr;
};
void flash90_scaled_forward(const ScaledFlash& call, float* y, float* lse, Stream stream);

// `delta`: float [batch, n_heads, seq], rowsum(dy y). Needs `workspace` as above, of the size
// below; dq is always summed in a fixed order.
std::size_t flash90_scaled_workspace(const FlashShape& shape);
void flash90_scaled_backward(const ScaledFlash& call, const float* lse, const float* delta,
                             const void* dy, const float* dy_scale, const FlashGradients& gradients,
                             void* workspace, Stream stream);

}  // namespace ridge::gpu
