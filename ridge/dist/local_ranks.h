#pragma once

#include <functional>

#include "ridge/device/device.h"

namespace ridge {

// Calls work(device) on the devices of so many ranks at once: threads of this process, each with a
// CPU of so many threads, which reach each other as processes do. Throws what the first of them to
// fail by itself has thrown, when all have ended.
void on_local_ranks(int count, int threads_each, const std::function<void(Device&)>& work);

}  // namespace ridge
