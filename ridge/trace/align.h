#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace ridge::trace {

// Pairs of places (in a, in b) of equal symbols, ascending in both: a longest common subsequence
// (Myers, 1986) where the sequences differ in few places, and a common one that may be shorter
// where they differ in more. Time and memory are linear in the sequences and in the largest symbol:
// symbols are numbers from zero on.
std::vector<std::pair<std::size_t, std::size_t>> aligned(std::span<const std::uint32_t> a,
                                                         std::span<const std::uint32_t> b);

}  // namespace ridge::trace
