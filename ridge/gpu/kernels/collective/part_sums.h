#pragma once

#include <cstdint>

#include "ridge/base/dtype.h"
#include "ridge/gpu/device/context.h"

namespace ridge::gpu {

// What all ranks have of one rank's part of a tensor: its own, and the others' in rows, in the
// order of the ranks and so many bytes apart, a multiple of 16.
struct PartOfAll {
  const void* own = nullptr;
  const void* others = nullptr;
  std::int64_t stride = 0;
  int rank = 0, ranks = 1;
  bool has_own_row = false;  // among the others', where it is not read
};

// y = factor * the sum over ranks, in f32 and rounded once, in the order of a binary tree,
// ((0 + 1) + (2 + 3)) + .., which is the host's (device/communicator.h). y may be part.own.
void sum_over_ranks(const Context& gpu, DType dtype, std::int64_t elements, const PartOfAll& part,
                    float factor, void* y);

// Nothing is done where both are the same memory.
void copy(const Context& gpu, std::int64_t bytes, const void* x, void* y);

}  // namespace ridge::gpu
