#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ridge/profile/recording.h"

namespace ridge {

// What the nodes of one operator had allocated for them. Bytes are those that the allocator handed
// out, alignment included; what persists from step to step is nobody's.
struct OperatorMemory {
  std::string op;
  std::int64_t allocations = 0;  // over all recorded steps, as are the next two
  std::uint64_t results = 0;     // bytes of values that they computed
  std::uint64_t workspace = 0;   // bytes that they needed while they ran
  std::uint64_t largest = 0;     // of one allocation

  std::uint64_t all() const { return results + workspace; }
};

// Returns the allocations of each operator in the recorded steps, most bytes first.
std::vector<OperatorMemory> operator_memory(const Recording& recording);

// For the terminal: per step, the first `top` operators.
std::string operator_memory_text(const Recording& recording, std::size_t top = 10);

}  // namespace ridge
