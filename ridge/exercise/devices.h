#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "ridge/device/device.h"
#include "ridge/run/observer.h"

namespace ridge {

// Devices with something wrong in them, for exercises: each is another device, which outlives it,
// but for one thing.

// Hands everything to the other device.
class WrappedDevice : public Device {
 public:
  explicit WrappedDevice(Device& inner) : WrappedDevice(inner, inner.info()) {}
  // Says other things of itself.
  WrappedDevice(Device& inner, DeviceInfo info) : Device(std::move(info)), inner_(inner) {}

  PreparedKernel prepare(const Op& op, Types in, Types out, const KernelChoice& choice) override {
    return inner_.prepare(op, in, out, choice);
  }
  void* allocate(std::size_t bytes) override { return inner_.allocate(bytes); }
  void deallocate(void* memory, std::size_t bytes) override { inner_.deallocate(memory, bytes); }
  std::size_t available_memory() const override { return inner_.available_memory(); }
  void upload(void* device, const void* host, std::size_t bytes) override {
    inner_.upload(device, host, bytes);
  }
  void download(void* host, const void* device, std::size_t bytes) override {
    inner_.download(host, device, bytes);
  }
  void clear(void* device, std::size_t bytes) override { inner_.clear(device, bytes); }
  void synchronize() override { inner_.synchronize(); }
  void download_later(void* host, const void* device, std::size_t bytes) override {
    inner_.download_later(host, device, bytes);
  }
  void* allocate_host(std::size_t bytes) override { return inner_.allocate_host(bytes); }
  void deallocate_host(void* memory) override { inner_.deallocate_host(memory); }
  void mark(std::size_t slot) override { inner_.mark(slot); }
  void wait(std::size_t slot) override { inner_.wait(slot); }
  double seconds_between(std::size_t from, std::size_t to) const override {
    return inner_.seconds_between(from, to);
  }
  KernelPtr capture(std::span<const DeviceWork> works) override { return inner_.capture(works); }
  DeviceTools& tools() override { return inner_.tools(); }

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
  void clear(void* device, std::size_t bytes) override;
  void download_later(void* host, const void* device, std::size_t bytes) override;
  void synchronize() override;
  void wait(std::size_t) override { drain(); }
  // A captured kernel would not wait for those in the queue.
  KernelPtr capture(std::span<const DeviceWork>) override { return nullptr; }

  // Marks are not points in the order of the kernels, as they should be, but times of the launching
  // thread, on a clock that stands while it waits.
  void mark(std::size_t slot) override;
  double seconds_between(std::size_t from, std::size_t to) const override;
  Clock::duration waited() const { return waited_; }

 private:
  using Task = std::function<void()>;

  void enqueue(Task task);
  void drain();
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;  // the first may be running
  bool stop_ = false;
  Clock::duration waited_{};
  std::vector<Clock::time_point> marks_;
  std::thread worker_;
};

}  // namespace ridge
