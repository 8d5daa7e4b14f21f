#include <initializer_list>

#include "ridge/gpu/kernels/attention/flash.h"
#include "ridge/gpu/sm90/attention/flash_short.h"

namespace ridge::gpu {
namespace {

bool is_aligned(std::initializer_list<const void*> pointers) {
  for (const void* pointer : pointers)
    if (reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0) return false;
  return true;
}

bool is_aligned(std::initializer_list<std::int64_t> strides) {
  for (const std::int64_t stride : strides)
    if (stride % 8 != 0) return false;
  return true;
}

bool is_built(const FlashShape& shape) {
  return shape.head_dim == 32 || shape.head_dim == 64 || shape.head_dim == 128;
}

}  // namespace

bool flash_sm90_supports(const FlashShape& shape, const FlashOperands& operands) {
  return is_built(shape) && is_aligned({operands.q, operands.k, operands.v}) &&
         is_aligned({operands.q_stride, operands.k_stride, operands.v_stride});
}

bool flash_sm90_supports(const FlashShape& shape, const FlashGradients& gradients) {
  return is_built(shape) && is_aligned({gradients.dq, gradients.dk, gradients.dv}) &&
         is_aligned({gradients.dq_stride, gradients.dk_stride, gradients.dv_stride});
}

bool flash_sm90_rotates(const FlashShape& shape) { return sm90::is_short(shape); }

}  // namespace ridge::gpu
