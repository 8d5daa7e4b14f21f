#pragma once

#include <cstddef>

#include "ridge/base/shape.h"
#include "ridge/device/kernel.h"
#include "ridge/device/tuner.h"
#include "ridge/gpu/device/context.h"

namespace ridge {

// What an operator sees while it prepares its GPU kernel.
struct GpuPrepare {
  const gpu::Context& gpu;  // outlives the kernel
  Types in;                 // valid only while preparing
  Types out;
  // Bytes that the kernel wants at Launch::workspace, aligned to 64 bytes; not kept between
  // launches.
  std::size_t workspace = 0;
  KernelChoice choice = {};
};

}  // namespace ridge
