#pragma once

// Convolutions of s8 with what ops/int8.h does to their sums: by Hopper's own instructions
// (ridge/gpu/sm90), and by plain ones for all shapes and cards.

#include <string>
#include <vector>

#include "ridge/gpu/device/context.h"
#include "ridge/ops/int8.h"

namespace ridge::gpu {

struct Int8Problem {
  Int8Conv2d op;
  ImageShape x, y, weight;  // of the weight: O, C / G, R, S
};

// `residual` is null where there is none.
struct Int8Pointers {
  const void *x, *weight;
  const float *weight_scale, *bias;
  const void* residual;
  void* y;
};

// How the result, a matrix [N H W, O], is cut: tiles of `rows` x `columns`, of which `split` blocks
// each sum a part, with so many bytes of the inner dimension at a time.
struct Int8Tiles {
  int rows = 128, columns = 128, depth = 128, split = 1;
  bool operator==(const Int8Tiles&) const = default;
};
std::string to_string(const Int8Tiles& tiles);

// The tiles that there are kernels for and that may be worth their while, what is expected to be
// the fastest first; none for cards other than Hopper, groups, channels that are no multiples of
// 16, and results other than s8 and f16.
std::vector<Int8Tiles> int8_conv90_ways(const Context& gpu, const Int8Problem& problem);

// Operands at multiples of 16 bytes. Enqueues; DeviceError.
void int8_conv90(const Context& gpu, const Int8Problem& problem, const Int8Tiles& tiles,
                 const Int8Pointers& operands);

// Of any geometry and alignment. Enqueues; DeviceError.
void int8_conv_direct(const Context& gpu, const Int8Problem& problem, const Int8Pointers& operands);

}  // namespace ridge::gpu
