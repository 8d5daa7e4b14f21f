#pragma once

// Bounds how many works of a captured step a device is asked to run at the same time.

#include <cstddef>
#include <span>
#include <vector>

#include "ridge/device/device.h"

namespace ridge {

// Puts each work into one of so many lanes, in which each work follows the one before it, and
// returns by work the earlier ones that it must follow: those it had and, where it follows no
// lane's last work anyway, the one of these last works that came earliest. So no more works than
// there are lanes can ever run at the same time.
std::vector<std::vector<std::size_t>> follow_in_lanes(std::span<const DeviceWork> works,
                                                      std::size_t lanes);

}  // namespace ridge
