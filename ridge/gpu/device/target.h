#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ridge/gpu/device/card.h"
#include "ridge/passes/target.h"

namespace ridge::gpu {

// The columns of the widest head that the attention kernels hold.
inline constexpr std::int64_t widest_head = 256;

// Of values in an arena, in bytes: memory moves in lines of 128, and products are slower where rows
// begin within a pair of them.
inline constexpr std::size_t arena_alignment = 256;

// What a card likes; its name, as the driver says it, and the name of the device are for people.
Target target_of(const Card& card, std::string_view hardware, std::string_view device = "cuda");

}  // namespace ridge::gpu
