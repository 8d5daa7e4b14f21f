#pragma once

// A ResidualBottleneck by the kernels of its convolutions, on any device.

#include <algorithm>
#include <cstddef>
#include <utility>

#include "ridge/device/kernel.h"
#include "ridge/device/prepare_part.h"
#include "ridge/ops/residual_bottleneck_parts.h"

namespace ridge {

// The kernels of the parts. What they hand on is at the beginning of the workspace.
struct ResidualBottleneckKernels {
  ResidualBottleneckParts parts;
  KernelPtr inner, projection, expansion, reduction;  // projection and reduction may be null
  std::size_t inner_bytes = 0, projected_bytes = 0;

  void launch(const Launch& call) const;
};

// kernel_of(op, prepare) is a part's kernel on the device.
template <class Prepare, class KernelOf>
KernelPtr in_parts(const ResidualBottleneck& op, Prepare& prepare, const KernelOf& kernel_of) {
  const auto aligned = [](const TensorType& type) {
    constexpr std::size_t alignment = 256;
    return (type.bytes() + alignment - 1) / alignment * alignment;
  };
  const ResidualBottleneckParts parts(op);
  std::size_t workspace = 0;
  const auto part = [&](const Conv2d& conv, Types in, Types out) {
    return prepare_part(prepare, conv, in, out, workspace, kernel_of);
  };
  const Types in = prepare.in;
  const TensorType z = parts.inner.infer(parts.of_inner(in))[0], &y = prepare.out[0];
  ResidualBottleneckKernels kernels{.parts = parts};
  kernels.inner = part(parts.inner, parts.of_inner(in), {&z, 1});
  kernels.inner_bytes = aligned(z);
  if (op.projects) {
    kernels.projection = part(parts.projection, parts.of_projection(in), {&y, 1});
    kernels.projected_bytes = aligned(y);
  }
  kernels.expansion = part(parts.expansion, parts.of_expansion(in, z, y), {&y, 1});
  if (op.reduces)
    kernels.reduction = part(parts.reduction, parts.of_reduction(in, y), prepare.out.last(1));
  prepare.workspace =
      std::max(prepare.workspace, kernels.inner_bytes + kernels.projected_bytes + workspace);
  return make_kernel([kernels = std::move(kernels)](const Launch& call) { kernels.launch(call); });
}

}  // namespace ridge
