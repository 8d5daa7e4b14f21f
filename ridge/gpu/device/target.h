#pragma once

#include <cstdint>
#include <string_view>

#include "ridge/gpu/device/card.h"
#include "ridge/passes/target.h"

namespace ridge::gpu {

// The columns of the widest head that the attention kernels hold.
inline constexpr std::int64_t widest_head = 256;

// What a card likes; its name, as the driver says it, is for people.
Target target_of(const Card& card, std::string_view hardware);

}  // namespace ridge::gpu
