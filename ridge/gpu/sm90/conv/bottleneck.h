#pragma once

#include "ridge/gpu/kernels/conv/bottleneck_sm90.h"

namespace ridge::gpu::sm90 {

// Implement the functions of kernels/conv/bottleneck_sm90.h.
bool bottleneck_fits(const BottleneckProblem& problem, BottleneckTiles tiles);
std::int64_t bottleneck_tiles(const BottleneckProblem& problem);
void bottleneck(const BottleneckProblem& problem, BottleneckTiles tiles,
                const BottleneckPointers& operands, int multiprocessors, Stream stream);

}  // namespace ridge::gpu::sm90
