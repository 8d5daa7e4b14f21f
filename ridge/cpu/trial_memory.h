#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "ridge/base/error.h"
#include "ridge/cpu/simd.h"

namespace ridge {

struct FreeTrialMemory {
  void operator()(void* memory) const { std::free(memory); }
};
// Memory in which candidates are timed, aligned to 64 bytes.
using TrialMemory = std::unique_ptr<void, FreeTrialMemory>;

inline TrialMemory trial_memory(std::size_t bytes) {
  TrialMemory memory(std::aligned_alloc(64, (std::max<std::size_t>(bytes, 1) + 63) / 64 * 64));
  if (!memory) throw OutOfMemoryError("the system has no {} bytes left to time kernels", bytes);
  return memory;
}

// A tensor of numbers from 1 to 2 whose bits all vary: multiplying small integers takes less power,
// and a processor that it leaves more clock ranks candidates otherwise.
inline TrialMemory trial_tensor(std::int64_t elements, DType dtype) {
  TrialMemory memory = trial_memory(static_cast<std::size_t>(elements) * size_of(dtype));
  dispatch_floating(dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < elements; ++i)
      store(static_cast<T*>(memory.get()) + i,
            1.0f + static_cast<float>(static_cast<std::uint32_t>(i) * 0x9E3779B9u >> 9) * 0x1p-23f);
  });
  return memory;
}

}  // namespace ridge
