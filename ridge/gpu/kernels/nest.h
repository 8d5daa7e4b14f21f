#pragma once

// Loop nests (base/loop_nest.h) as kernels take them.

#include <cstdint>
#include <limits>
#include <span>

#include "ridge/base/loop_nest.h"
#include "ridge/gpu/device/runtime.h"

namespace ridge::gpu {

// Index is the narrowest integer that counts the iterations: dividing by 64 bits takes several
// times as long as by 32.
template <class Index>
struct Nest {
  int loops = 0;
  Index extent[Shape::max_rank];
  Index stride[Shape::max_rank][2];

  explicit Nest(std::span<const NestedLoop> nest) {
    for (const NestedLoop& loop : nest) {
      extent[loops] = static_cast<Index>(loop.extent);
      for (int operand = 0; operand < 2; ++operand)
        stride[loops][operand] =
            static_cast<Index>(loop.strides[static_cast<std::size_t>(operand)]);
      ++loops;
    }
  }
};

template <class Index>
struct NestOffsets {
  Index at[2];
};

// Both offsets at one iteration, counted in row-major order.
template <class Index>
__device__ NestOffsets<Index> offsets_at(const Nest<Index>& nest, Index iteration) {
  NestOffsets<Index> offsets{};
  for (int l = nest.loops - 1; l >= 0; --l) {
    const Index rest = l == 0 ? 0 : iteration / nest.extent[l];
    const Index i = iteration - rest * nest.extent[l];
    offsets.at[0] += i * nest.stride[l][0];
    offsets.at[1] += i * nest.stride[l][1];
    iteration = rest;
  }
  return offsets;
}

// Calls function.template operator()<Index>() for an integer that holds indices below `count`, and
// those of the threads of a last block that have nothing to do.
template <class F>
auto dispatch_index(std::int64_t count, const F& function) {
  if (count < std::numeric_limits<std::int32_t>::max())
    return function.template operator()<std::uint32_t>();
  return function.template operator()<std::uint64_t>();
}

// Which of `count` parts, each of which ends where the next begins, element i is in.
template <class Begin>
__device__ int part_of(const Begin* begin, int count, std::int64_t i) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (begin[middle] <= i ? low : high) = middle;
  }
  return low;
}

template <class Index>
__device__ Index thread_index() {
  return static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
}

}  // namespace ridge::gpu
