#pragma once

#include <algorithm>
#include <cstddef>

#include "ridge/base/shape.h"
#include "ridge/device/kernel.h"

namespace ridge {

// The kernel of a part of an operator, on any device: kernel_of(op, prepare) is the part's kernel
// there. Adds the workspace it wants to the most that any part wanted.
template <class Prepare, class Part, class KernelOf>
KernelPtr prepare_part(const Prepare& whole, const Part& op, Types in, Types out,
                       std::size_t& workspace, const KernelOf& kernel_of) {
  Prepare part = whole;
  part.in = in;
  part.out = out;
  part.workspace = 0;
  KernelPtr kernel = kernel_of(op, part);
  workspace = std::max(workspace, part.workspace);
  return kernel;
}

}  // namespace ridge
