#include "ridge/gpu/sm90/conv/bottleneck.h"

namespace ridge::gpu {

bool bottleneck_sm90_supports(const Context& gpu, const ResidualBottleneck& op,
                              const BottleneckProblem& p, BottleneckTiles tiles) {
  const ConvGeometry geometry{.padding = {1, 1}, .layout = ImageLayout::nhwc};
  return gpu.card.is_sm90() && is_16_bit(p.dtype) &&
         static_cast<const ConvGeometry&>(op) == geometry && sm90::bottleneck_fits(p, tiles);
}

std::int64_t bottleneck_sm90_tiles(const BottleneckProblem& problem) {
  return sm90::bottleneck_tiles(problem);
}

void bottleneck_sm90(const Context& gpu, const BottleneckProblem& problem, BottleneckTiles tiles,
                     const BottleneckPointers& operands) {
  sm90::bottleneck(problem, tiles, operands, gpu.card.multiprocessors, gpu.stream);
}

}  // namespace ridge::gpu
