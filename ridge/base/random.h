#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ridge/base/philox.h"

namespace ridge {

// FNV-1a: the stream a named tensor draws from.
std::uint64_t stream_of(std::string_view name);

// Fills `out` with elements [first, first + out.size()) of a stream of N(0, std^2), by Box-Muller.
// Each is a function of (seed, stream, its index in the stream) alone, so a tensor may be filled in
// parts, in any order and in parallel.
void fill_normal(std::span<float> out, float std, std::uint64_t seed, std::uint64_t stream,
                 std::uint64_t first = 0);

// The integer number `index` of a stream, uniform in [0, bound); bound is at least 1.
std::uint32_t uniform_integer(std::uint32_t bound, std::uint64_t seed, std::uint64_t stream,
                              std::uint64_t index);

}  // namespace ridge
