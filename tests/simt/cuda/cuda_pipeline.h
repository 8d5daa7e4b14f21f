#pragma once

// Copies to shared memory that the machine does at once.

#include "tests/simt/language.h"

// The last `zeros` bytes are 0 instead.
inline void __pipeline_memcpy_async(void* to, const void* from, std::size_t bytes,
                                    std::size_t zeros = 0) {
  ridge::simt::copy(to, from, bytes, zeros);
}
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(std::size_t) {}
