#pragma once

#include <functional>
#include <memory>

#include "ridge/device/device.h"

namespace ridge {

// Calls work(device) on the devices of so many ranks at once: threads of this process, each with
// what open(rank) gives it, which reach each other as processes do. Throws what the first of them
// to fail by itself has thrown, when all have ended.
void on_local_ranks(int count, const std::function<std::unique_ptr<Device>(int rank)>& open,
                    const std::function<void(Device&)>& work);

}  // namespace ridge
