#pragma once

#include <cstdint>
#include <string_view>

#include "ridge/passes/target.h"

namespace ridge::gpu {

// The columns of the widest head that the attention kernels hold.
inline constexpr std::int64_t widest_head = 256;

// What a card of a compute capability (90 for 9.0) and a name ("NVIDIA H100 80GB HBM3") likes.
Target target_of(int compute_capability, std::string_view hardware);

}  // namespace ridge::gpu
