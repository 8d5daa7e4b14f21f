#pragma once

#include <cstddef>

namespace ridge {

// While alive, the heap may grow by at most `bytes` at any moment, or the program aborts. One at a
// time. Works where the address sanitizer is linked in.
class AllocationLimit {
 public:
  explicit AllocationLimit(std::size_t bytes);
  ~AllocationLimit();
  AllocationLimit(const AllocationLimit&) = delete;
  AllocationLimit& operator=(const AllocationLimit&) = delete;
};

}  // namespace ridge
