#pragma once

// What the runtime and the driver tell of a card. One file implements this for each vendor.

#include <array>
#include <string>

#include "ridge/device/device.h"
#include "ridge/gpu/device/card.h"

namespace ridge::gpu {

using CardId = std::array<char, 16>;  // which no other card has

struct CardProperties {
  Card card;
  DeviceInfo info;
  CardId id{};
};

// Those of a card by its index, which becomes the one of the calling thread. DeviceError if the
// runtime refuses.
CardProperties properties_of(int index);

// "driver 580.159.04", "HIP 5.2.21153".
std::string driver_text();

}  // namespace ridge::gpu
