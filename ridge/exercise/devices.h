#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ridge/run/device.h"
#include "ridge/run/observer.h"

namespace ridge {

// Devices with something wrong in them, for exercises: each is another device, which outlives it,
// but for one thing.

// Hands everything to the other device.
class WrappedDevice : public Device {
 public:
  explicit WrappedDevice(Device& inner) : inner_(inner) {}

  std::string name() const override { return inner_.name(); }
  std::string description() const override { return inner_.description(); }
  int threads() const override { return inner_.threads(); }
  PreparedKernel prepare(const Op& op, Types in, Types out, const KernelChoice& choice) override {
    return inner_.prepare(op, in, out, choice);
  }
  void* allocate(std::size_t bytes) override { return inner_.allocate(bytes); }
  void deallocate(void* memory, std::size_t bytes) override { inner_.deallocate(memory, bytes); }
  std::size_t total_memory() const override { return inner_.total_memory(); }
  std::size_t available_memory() const override { return inner_.available_memory(); }
  void upload(void* device, const void* host, std::size_t bytes) override {
    inner_.upload(device, host, bytes);
  }
  void download(void* host, const void* device, std::size_t bytes) override {
    inner_.download(host, device, bytes);
  }
  void synchronize() override { inner_.synchronize(); }

 private:
  Device& inner_;
};

// The dense layers of so many outputs, x[M, K] weight[N, K]^T, are three loops without blocking,
// vectors or threads.
class NaiveProductDevice final : public WrappedDevice {
 public:
  NaiveProductDevice(Device& inner, std::int64_t outputs)
      : WrappedDevice(inner), outputs_(outputs) {}

  PreparedKernel prepare(const Op& op, Types in, Types out, const KernelChoice& choice) override;
  std::size_t replaced() const { return replaced_; }  // kernels so far

 private:
  std::int64_t outputs_;
  std::size_t replaced_ = 0;
};

// Kernels run on a thread of their own, in the order of their launches, and a launch only enqueues,
// as on a GPU. Whatever passes data to and fro waits for them.
class QueuedDevice final : public WrappedDevice {
 public:
  explicit QueuedDevice(Device& inner);
  ~QueuedDevice() override;

  PreparedKernel prepare(const Op& op, Types in, Types out, const KernelChoice& choice) override;
  void deallocate(void* memory, std::size_t bytes) override;
  void upload(void* device, const void* host, std::size_t bytes) override;
  void download(void* host, const void* device, std::size_t bytes) override;
  void synchronize() override;

  // The time, of a clock that stands while the caller waits for the kernels.
  Clock::time_point now_without_waiting() const { return Clock::now() - waited_; }
  Clock::duration waited() const { return waited_; }

 private:
  using Task = std::function<void()>;

  void enqueue(Task task);
  void wait();
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;  // the first may be running
  bool stop_ = false;
  Clock::duration waited_{};
  std::thread worker_;
};

}  // namespace ridge
