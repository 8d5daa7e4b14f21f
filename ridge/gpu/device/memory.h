#pragma once

// Memory of the card that kernels keep from one launch to the next.

#include <cstddef>

#include "ridge/gpu/device/context.h"

namespace ridge::gpu {

// Freed when the kernels that share it are; that waits for their work. Not for launching: a launch
// allocates nothing.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);  // OutOfMemoryError if there are not so many
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Enqueues setting the first `bytes` bytes to zero.
  void clear(Stream stream, std::size_t bytes);

  template <class T>
  T* data() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

}  // namespace ridge::gpu
