#pragma once

// Convolutions of s8 with what ops/int8.h does to their sums: by the instructions of sm90
// (ridge/gpu/sm90), and by plain ones for all shapes and cards.

#include <string>

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

// How the result, a matrix [N H W, O], is cut: tiles of `rows` x `columns`, of which `split` thread
// blocks each sum a part, with so many bytes of the inner dimension at a time.
struct Int8Tiles {
  int rows = 128, columns = 128, depth = 128, split = 1;
  bool operator==(const Int8Tiles&) const = default;
};
std::string to_string(const Int8Tiles& tiles);

// Whether there is a kernel with such tiles and it may be worth its while: on sm90, without groups,
// for channels that are multiples of 16, and results of s8 and f16.
bool int8_conv_sm90_supports(const Context& gpu, const Int8Problem& problem,
                             const Int8Tiles& tiles);

// Which tiles are expected to be the fastest, if any are supported.
Int8Tiles int8_conv_sm90_expected_best(const Context& gpu, const Int8Problem& problem);

// Operands at multiples of 16 bytes. Enqueues; DeviceError.
void int8_conv_sm90(const Context& gpu, const Int8Problem& problem, const Int8Tiles& tiles,
                    const Int8Pointers& operands);

// The same for any geometry and alignment. Enqueues; DeviceError.
void int8_conv_direct(const Context& gpu, const Int8Problem& problem, const Int8Pointers& operands);

}  // namespace ridge::gpu
