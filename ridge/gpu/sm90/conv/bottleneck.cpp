#include "ridge/gpu/sm90/conv/bottleneck.h"

namespace ridge::gpu {

bool bottleneck90_supports(const Context& gpu, const ResidualBottleneck& op,
                           const BottleneckProblem& p, BottleneckWay way) {
  const ConvGeometry geometry{.padding = {1, 1}, .layout = ImageLayout::nhwc};
  return gpu.compute_capability == 90 && is_16_bit(p.dtype) &&
         static_cast<const ConvGeometry&>(op) == geometry && sm90::bottleneck_fits(p, way);
}

std::int64_t bottleneck90_tiles(const BottleneckProblem& problem) {
  return sm90::bottleneck_tiles(problem);
}

void bottleneck90(const Context& gpu, const BottleneckProblem& problem, BottleneckWay way,
                  const BottleneckPointers& operands) {
  sm90::bottleneck(problem, way, operands, gpu.multiprocessors, gpu.stream);
}

}  // namespace ridge::gpu
