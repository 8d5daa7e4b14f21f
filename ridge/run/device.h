#pragma once

#include <cstddef>
#include <string>

#include "ridge/base/shape.h"
#include "ridge/ops/kernel.h"
#include "ridge/ops/tuner.h"

namespace ridge {

struct Op;

// A kernel and the workspace it wants at each launch.
struct PreparedKernel {
  KernelPtr kernel;  // null if there is nothing to do (a reshape)
  std::size_t workspace = 0;
};

// Where kernels run and tensors live. Work is enqueued in order; synchronize() waits for all of it.
// DeviceError if a call on the device fails.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;         // "cpu"
  virtual std::string description() const = 0;  // "AMD EPYC, 4 threads"
  // "AMD EPYC": the same whatever number of threads shares it.
  virtual std::string hardware() const { return description(); }
  virtual int threads() const = 0;  // that share a kernel; 1 where they do not count

  virtual PreparedKernel prepare(const Op& op, Types in, Types out,
                                 const KernelChoice& choice = {}) = 0;

  // Uninitialised memory aligned to 64 bytes; OutOfMemoryError if there is none.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* memory, std::size_t bytes) = 0;
  virtual std::size_t total_memory() const = 0;      // bytes fitted
  virtual std::size_t available_memory() const = 0;  // bytes that could still be allocated

  virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
  virtual void download(void* host, const void* device, std::size_t bytes) = 0;
  virtual void synchronize() = 0;
};

}  // namespace ridge
