#include <array>
#include <initializer_list>

#include "ridge/gpu/device/card.h"
#include "ridge/gpu/kernels/attention/flash.h"

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

bool is_one_tile(const FlashShape& shape) {
  return shape.seq <= flash_tile_rows && shape.head_dim <= 64;
}

bool is_whole(const FlashShape& shape) {
  return !shape.causal && shape.seq > flash_tile_rows && shape.seq <= most_whole_keys &&
         shape.head_dim <= 64;
}

}  // namespace

std::string_view name_of(FlashForward kernel) {
  constexpr std::array<std::string_view, 5> names{"one tile", "whole heads", "whole heads in tiles",
                                                  "two warpgroups", "three warpgroups"};
  return names[static_cast<std::size_t>(kernel)];
}

std::string_view name_of(FlashBackward kernel) {
  constexpr std::array<std::string_view, 3> names{"one tile", "scores computed twice",
                                                  "dq summed in memory"};
  return names[static_cast<std::size_t>(kernel)];
}

bool flash_sm90_supports(FlashForward kernel, const FlashShape& shape, bool) {
  switch (kernel) {
    case FlashForward::one_tile:
      return is_built(shape) && is_one_tile(shape);
    case FlashForward::whole_heads:
      return is_built(shape) && is_whole(shape);
    case FlashForward::whole_tiles:  // which is the one above where there is no rest
      return is_built(shape) && is_whole(shape) && has_rest(shape);
    case FlashForward::two_warpgroups:
      return is_built(shape);
    case FlashForward::three_warpgroups:  // whose registers hold no wider heads
      return is_built(shape) && shape.head_dim <= 64;
  }
  return false;
}

bool flash_sm90_supports(FlashBackward kernel, const FlashShape& shape, bool deterministic) {
  switch (kernel) {
    case FlashBackward::one_tile:
      return is_built(shape) && is_one_tile(shape);
    case FlashBackward::separate:
      return is_built(shape);
    case FlashBackward::summed:
      return is_built(shape) && !deterministic;
  }
  return false;
}

bool flash_sm90_supports(const FlashShape& shape, const FlashOperands& operands) {
  return is_built(shape) && is_aligned({operands.q, operands.k, operands.v}) &&
         is_aligned({operands.q_stride, operands.k_stride, operands.v_stride});
}

bool flash_sm90_supports(const FlashShape& shape, const FlashGradients& gradients) {
  return is_built(shape) && is_aligned({gradients.dq, gradients.dk, gradients.dv}) &&
         is_aligned({gradients.dq_stride, gradients.dk_stride, gradients.dv_stride});
}

// Kernels for few positions alone come before those for any number.
int flash_sm90_expectation(FlashForward kernel, const FlashShape& shape, const Crossovers& at) {
  if (kernel == FlashForward::one_tile || kernel == FlashForward::whole_heads) return 3;
  if (kernel == FlashForward::whole_tiles) return 2;
  const bool third_pays = shape.seq > at.third_warpgroup_seq;
  return (kernel == FlashForward::three_warpgroups) == third_pays ? 1 : 0;
}

int flash_sm90_expectation(FlashBackward kernel, const FlashShape& shape, const Crossovers& at) {
  if (kernel == FlashBackward::one_tile) return 2;
  const bool sum_pays = shape.seq * shape.head_dim > at.separate_gradient_elements;
  return (kernel == FlashBackward::summed) == sum_pays ? 1 : 0;
}

}  // namespace ridge::gpu
