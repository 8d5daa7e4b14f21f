#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

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

namespace gpu {

inline bool is_aligned(const void* p, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}

// Whether all operands of a launch begin at multiples of so many bytes: slices may begin anywhere.
inline bool is_aligned(const Launch& call, std::size_t bytes) {
  const auto aligned = [bytes](const void* p) { return is_aligned(p, bytes); };
  return std::ranges::all_of(call.inputs, aligned) && std::ranges::all_of(call.outputs, aligned);
}

}  // namespace gpu

}  // namespace ridge
