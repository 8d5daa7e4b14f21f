#include "ridge/device/residual_bottleneck_kernels.h"

#include <array>

namespace ridge {

void ResidualBottleneckKernels::launch(const Launch& call) const {
  auto* const memory = static_cast<std::byte*>(call.workspace);
  void *const between = memory, *const projected = memory + inner_bytes;
  void* const rest = memory + inner_bytes + projected_bytes;
  const auto in = call.inputs;
  inner->launch({parts.of_inner(in), {&between, 1}, rest});
  if (projection) projection->launch({parts.of_projection(in), {&projected, 1}, rest});
  const void *const z = between, *const residual = projection ? projected : in[parts.at.residual];
  expansion->launch({parts.of_expansion(in, z, residual), call.outputs.first(1), rest});
  const void* const y = call.outputs[0];
  if (reduction) reduction->launch({parts.of_reduction(in, y), call.outputs.last(1), rest});
}

}  // namespace ridge
