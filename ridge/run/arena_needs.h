#pragma once

#include "ridge/device/device.h"
#include "ridge/plan/arena.h"

namespace ridge {

// What a device asks of an arena whose kernels may run at the same time, or not.
inline ArenaNeeds arena_needs(const Device& device, bool concurrent) {
  const Target& target = device.target();
  return {.alignment = target.alignment,
          .lingering = concurrent ? target.lingering : Lingering{},
          .messages_in_one = device.is_gpu()};
}

}  // namespace ridge
