#pragma once

#include "ridge/device/device.h"
#include "ridge/plan/arena.h"

namespace ridge {

// What a device asks of an arena whose kernels may run at the same time, or not. A GPU moves memory
// in lines, and products are slower where rows begin within one.
inline ArenaNeeds arena_needs(const Device& device, bool concurrent) {
  return {.alignment = device.asynchronous() ? 256 : tensor_alignment,
          .concurrent = concurrent && device.asynchronous()};
}

}  // namespace ridge
