#pragma once

#include <cstdint>
#include <span>

#include "ridge/base/dtype.h"
#include "ridge/gpu/device/context.h"

namespace ridge::gpu {

// What all ranks have of one rank's part of a tensor: its own, and the others' in rows, in the
// order of the ranks and so many bytes apart, a multiple of 16.
struct PartOfAll {
  DType dtype = DType::f32;
  std::int64_t n = 0;  // elements
  const void* own = nullptr;
  const void* others = nullptr;
  std::int64_t stride = 0;
  void* sum = nullptr;  // may be its own
};

// The rank whose parts they are.
struct RankOfAll {
  int rank = 0, ranks = 1;
  bool has_own_row = false;  // among the others', where it is not read
};

// Each sum = factor * the sum over ranks, in f32 and rounded once, in the order of a binary tree,
// ((0 + 1) + (2 + 3)) + .., which is the host's (device/communicator.h). One launch takes many
// parts of one dtype.
void sum_over_ranks(const Context& gpu, std::span<const PartOfAll> parts, const RankOfAll& whose,
                    float factor);

struct Copy {
  std::int64_t n = 0;  // bytes
  const void* from = nullptr;
  void* to = nullptr;
};

// One launch takes many. Nothing is done where both are the same memory.
void copy(const Context& gpu, std::span<const Copy> copies);

struct Rounding {
  std::int64_t n = 0;  // elements
  const void* from = nullptr;
  void* to = nullptr;
};

// Writes elements in another dtype, of 16 bits. One launch takes many tensors.
void write_rounded(const Context& gpu, DType from, DType to, std::span<const Rounding> roundings);

}  // namespace ridge::gpu
