#pragma once

#include "ridge/gpu/kernels/conv/conv_epilogue.h"

namespace ridge::gpu {

// One of the four s8 in a word, the lowest first.
__device__ inline float byte_of(std::uint32_t word, int which) {
  return static_cast<float>(static_cast<std::int8_t>(word >> (8 * which)));
}

// Applies an epilogue of a convolution or of a linear layer.
template <int N>
__device__ inline void apply_any_epilogue(Epilogue epilogue, float (&values)[N]) {
  if (epilogue == Epilogue::gelu) return map_values(GeluOf(), values);
  apply_epilogue(epilogue, values);
}

}  // namespace ridge::gpu
