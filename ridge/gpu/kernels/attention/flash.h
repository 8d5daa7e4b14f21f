#pragma once

#include <cstddef>

#include "ridge/gpu/device/context.h"
#include "ridge/gpu/device/problems.h"

namespace ridge::gpu {

// The kernels of flash attention for sm90; device/problems.h says what they compute.

// Whether the kernels take this: a head_dim they are built for, pointers at multiples of 16 bytes,
// strides of multiples of 8 elements.
bool flash_sm90_supports(const FlashShape& shape, const FlashOperands& operands);
bool flash_sm90_supports(const FlashShape& shape, const FlashGradients& gradients);

// Whether the kernels rotate q and k themselves, because that costs less than a pass before them:
// where sequences are so short that no row is rotated often.
bool flash_sm90_rotates(const FlashShape& shape);

// y: [batch, seq, n_heads * head_dim]. lse: float [batch, n_heads, seq], the natural logarithm
// of the sum over keys of exp(scale q.k). Enqueues; throws DeviceError.
void flash_sm90_forward(const FlashShape& shape, const FlashOperands& operands, void* y, float* lse,
                        Stream stream);

// The backward pass, from dy and what the forward pass wrote (both laid out as y). Needs
// `workspace` of the size below, at a multiple of 256 bytes. `deterministic`: dq is summed over
// keys in a fixed order, so that reruns agree bit for bit; short sequences (up to 1,024 at
// head_dim 128, 2,048 at 64) always are, longer ones take up to a third longer for it.
std::size_t flash_sm90_backward_workspace(const FlashShape& shape);
void flash_sm90_backward(const FlashShape& shape, const FlashOperands& operands, const void* y,
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
void flash_sm90_scaled_forward(const ScaledFlash& call, float* y, float* lse, Stream stream);

// `delta`: float [batch, n_heads, seq], rowsum(dy y). Needs `workspace` as above, of the size
// below; dq is always summed in a fixed order.
std::size_t flash_sm90_scaled_workspace(const FlashShape& shape);
void flash_sm90_scaled_backward(const ScaledFlash& call, const float* lse, const float* delta,
                                const void* dy, const float* dy_scale,
                                const FlashGradients& gradients, void* workspace, Stream stream);

}  // namespace ridge::gpu
