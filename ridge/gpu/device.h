#pragma once

#include <memory>

#include "ridge/device/device.h"

namespace ridge {

struct GpuOptions {
  int index = 0;               // of the cards that the driver shows
  bool deterministic = false;  // sums in a fixed order, even where that is slower
};

// The number of cards that can be used; 0 without a driver.
int gpu_count();

// A card, ready to compute. DeviceError that says what is missing if there is none.
std::unique_ptr<Device> open_gpu(const GpuOptions& options = {});

}  // namespace ridge
