#pragma once

// A residual network's bottleneck behind its reduction (ops/residual_bottleneck.h) in one kernel,
// by the instructions of sm90, from ridge/gpu/sm90: of bf16 and f16, channels last.

#include <cstdint>

#include "ridge/gpu/device/context.h"
#include "ridge/ops/image.h"
#include "ridge/ops/residual_bottleneck.h"

namespace ridge::gpu {

struct BottleneckProblem {
  ImageShape x;
  std::int64_t size = 0;                    // of the window: 3 for 3 x 3
  std::int64_t inner = 0, expanded = 0;     // channels
  std::int64_t projected = 0, reduced = 0;  // channels that are projected and reduced to; or 0
  DType dtype = DType::bf16;
};

// Aligned to 16 bytes; those of the projection and the reduction are null if there is none.
struct BottleneckPointers {
  const void *x, *weight, *bias, *expansion, *expansion_bias;
  const void* residual;  // or what is projected
  const void *projection = nullptr, *projection_bias = nullptr;
  const void *reduction = nullptr, *reduction_bias = nullptr;
  const void *y = nullptr, *reduced = nullptr;  // written
};

// With tiles of 128 pixels, or of 64, which is faster for few pixels.
enum class BottleneckTiles : std::uint8_t { large, small };

// Whether there is such a kernel for it: on sm90, 3 x 3 at steps of one, of 64 channels, which it
// expands to at most 256; which may project 64 and reduce to 64, so that all weights fit into
// shared memory; and of images whose rows fill tiles.
bool bottleneck_sm90_supports(const Context& gpu, const ResidualBottleneck& op,
                              const BottleneckProblem& problem, BottleneckTiles tiles);

// How many tiles of 128 pixels it has.
std::int64_t bottleneck_sm90_tiles(const BottleneckProblem& problem);

// Enqueues; DeviceError.
void bottleneck_sm90(const Context& gpu, const BottleneckProblem& problem, BottleneckTiles tiles,
                     const BottleneckPointers& operands);

}  // namespace ridge::gpu
