#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/simt/shadow.h"

namespace ridge::simt {

// Before each access to memory: in a kernel it is judged, elsewhere it is nothing.
void touch(const void* place, std::size_t bytes, std::size_t alignment, Access access);

// Before the access to an element that an array does not have.
void fail_at_index(std::uintptr_t index);

}  // namespace ridge::simt
