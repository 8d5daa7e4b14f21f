#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace ridge {

// Scratch memory of the calling thread, aligned to 64 bytes: it grows to the most asked for. Valid
// until the thread asks again.
inline void* scratch_memory(std::size_t bytes) {
  thread_local std::vector<std::byte> buffer;
  if (buffer.size() < bytes + 64) buffer.resize(bytes + 64);
  void* memory = buffer.data();
  std::size_t space = buffer.size();
  return std::align(64, bytes, memory, space);
}

}  // namespace ridge
