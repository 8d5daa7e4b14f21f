#pragma once

#include <string_view>

#include "ridge/passes/target.h"

namespace ridge::gpu {

// What a card of a compute capability (90 for 9.0) and a name ("NVIDIA H100 80GB HBM3") likes.
Target target_of(int compute_capability, std::string_view hardware);

}  // namespace ridge::gpu
