#pragma once

#include "ridge/gpu/kernels/conv/bottleneck_sm90.h"

namespace ridge::gpu::sm90 {

// What bottleneck_sm90.h declares.
bool bottleneck_fits(const BottleneckProblem& problem, BottleneckTiles tiles);
std::int64_t bottleneck_tiles(const BottleneckProblem& problem);
void bottleneck(const BottleneckProblem& problem, BottleneckTiles tiles,
                const BottleneckPointers& operands, int multiprocessors, Stream stream);

}  // namespace ridge::gpu::sm90
