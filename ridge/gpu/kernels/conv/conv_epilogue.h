#pragma once

#include "ridge/gpu/kernels/activation.h"
#include "ridge/ops/conv.h"

namespace ridge::gpu {

template <class F, int N>
__device__ inline void map_values(F function, float (&values)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) values[k] = function(values[k]);
}

// What a convolution does to its sums before they are written.
template <int N>
__device__ inline void apply_epilogue(Epilogue epilogue, float (&values)[N]) {
  switch (epilogue) {
    case Epilogue::relu:
      return map_values(ReluOf(), values);
    case Epilogue::relu6:
      return map_values(Relu6Of(), values);
    case Epilogue::silu:
      return map_values(SiluOf(), values);
    case Epilogue::hard_swish:
      return map_values(HardSwishOf(), values);
    default:
      return;
  }
}

}  // namespace ridge::gpu
