#pragma once

#include <chrono>
#include <vector>

#include "ridge/base/thread_pool.h"
#include "ridge/cpu/prepare.h"
#include "ridge/cpu/rotations.h"
#include "ridge/device/device.h"

namespace ridge {

struct CpuKernels;  // cpu/kernels.h

// The processors and memory of this machine.
class CpuDevice final : public Device {
 public:
  // DeviceError if this program has no kernels for this processor.
  explicit CpuDevice(int threads = available_processors());

  PreparedKernel prepare(const Op& op, Types in, Types out,
                         const KernelChoice& choice = {}) override;
  void* allocate(std::size_t bytes) override;
  void deallocate(void* memory, std::size_t bytes) override;
  std::size_t available_memory() const override;
  void upload(void* device, const void* host, std::size_t bytes) override;
  void download(void* host, const void* device, std::size_t bytes) override;
  void clear(void* device, std::size_t bytes) override;
  void synchronize() override {}
  void download_later(void* host, const void* device, std::size_t bytes) override {
    download(host, device, bytes);
  }
  void* allocate_host(std::size_t bytes) override { return allocate(bytes); }
  void deallocate_host(void* memory) override { deallocate(memory, 0); }
  void mark(std::size_t slot) override;
  void wait(std::size_t) override {}
  double seconds_between(std::size_t from, std::size_t to) const override;
  KernelPtr capture(std::span<const DeviceWork>) override { return nullptr; }
  DeviceTools& tools() override { return no_tools_; }

  ThreadPool& pool() { return pool_; }

 private:
  const CpuKernels& kernels_;
  ThreadPool pool_;
  RotationTables rotations_;
  DeviceTools no_tools_;
  std::vector<std::chrono::steady_clock::time_point> marks_;
};

}  // namespace ridge
