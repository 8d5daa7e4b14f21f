#pragma once

#include <cstddef>

#include "tests/simt/shadow.h"

namespace ridge::simt {

// Before each access to memory: in a kernel it is judged, elsewhere it is nothing.
void touch(const void* place, std::size_t bytes, std::size_t alignment, Access access);

}  // namespace ridge::simt
