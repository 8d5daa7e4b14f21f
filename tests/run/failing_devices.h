#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/exercise/devices.h"

namespace ridge::testing {

// Works as a GPU does: a launch returns at once, steps are captured, and results may be read once a
// mark was waited for. After some launches it is lost: from then on every call that can fail does,
// as it is with an error that CUDA calls sticky. That launch itself fails, or succeeds, as those do
// whose fault shows only later.
class LossyDevice final : public WrappedDevice {
 public:
  static constexpr std::size_t never = ~std::size_t{0};

  explicit LossyDevice(Device& inner, std::size_t launches = never, bool at_launch = false)
      : WrappedDevice(inner, info_of(inner)), launches_left_(launches), at_launch_(at_launch) {}

  std::size_t launches() const { return launches_; }
  std::size_t captures() const { return captures_; }
  std::size_t blocks_held() const { return blocks_held_; }

  std::function<void()> on_wait;  // called before each wait for a mark

  PreparedKernel prepare(const Op& op, Types in, Types out, const KernelChoice& choice) override {
    require();
    PreparedKernel prepared = WrappedDevice::prepare(op, in, out, choice);
    if (!prepared.kernel) return prepared;
    const std::shared_ptr<const Kernel> kernel = std::move(prepared.kernel);
    prepared.kernel = make_kernel([this, kernel](const Launch& call) { launch(*kernel, call); });
    return prepared;
  }
  KernelPtr capture(std::span<const DeviceWork> works) override {
    require();
    ++captures_;
    return make_kernel([this, all = std::vector(works.begin(), works.end())](const Launch&) {
      require();
      capturing_ = true;  // what is lost within shows later
      for (const DeviceWork& work : all) work.enqueue();
      capturing_ = false;
    });
  }

  void* allocate(std::size_t bytes) override {
    require();
    ++blocks_held_;
    return WrappedDevice::allocate(bytes);
  }
  void deallocate(void* memory, std::size_t bytes) override {
    --blocks_held_;
    WrappedDevice::deallocate(memory, bytes);
  }
  void* allocate_host(std::size_t bytes) override {
    require();
    ++blocks_held_;
    return WrappedDevice::allocate_host(bytes);
  }
  void deallocate_host(void* memory) override {
    --blocks_held_;
    WrappedDevice::deallocate_host(memory);
  }
  void upload(void* device, const void* host, std::size_t bytes) override {
    require();
    WrappedDevice::upload(device, host, bytes);
  }
  void download(void* host, const void* device, std::size_t bytes) override {
    require();
    WrappedDevice::download(host, device, bytes);
  }
  void download_later(void* host, const void* device, std::size_t bytes) override {
    require();
    WrappedDevice::download_later(host, device, bytes);
  }
  void clear(void* device, std::size_t bytes) override {
    require();
    WrappedDevice::clear(device, bytes);
  }
  void synchronize() override {
    require();
    WrappedDevice::synchronize();
  }
  void mark(std::size_t slot) override {
    if (!capturing_) require();
    WrappedDevice::mark(slot);
  }
  void wait(std::size_t slot) override {
    if (on_wait) on_wait();
    require();
    WrappedDevice::wait(slot);
  }

 private:
  static DeviceInfo info_of(const Device& inner) {
    DeviceInfo info = inner.info();
    info.name = "lossy";
    info.target.kind = DeviceKind::gpu;
    return info;
  }

  void require() const {
    if (lost_) throw DeviceError("the GPU failed: uncorrectable ECC error encountered");
  }
  void launch(const Kernel& kernel, const Launch& call) {
    if (!capturing_) require();
    if (lost_) return;
    ++launches_;
    if (launches_left_-- == 0) {
      lost_ = true;
      if (at_launch_ && !capturing_) require();
      return;
    }
    kernel.launch(call);
  }

  std::size_t launches_left_;
  bool at_launch_;
  bool lost_ = false, capturing_ = false;
  std::size_t launches_ = 0, captures_ = 0, blocks_held_ = 0;
};

// Has so much memory, and says that it has some more: what another program takes meanwhile.
class SmallDevice final : public WrappedDevice {
 public:
  SmallDevice(Device& inner, std::size_t bytes, std::size_t claimed)
      : WrappedDevice(inner, info_of(inner, bytes)), bytes_(bytes), claimed_(claimed) {}

  std::size_t available_memory() const override { return bytes_ + claimed_ - held_; }
  std::size_t held() const { return held_; }

  void* allocate(std::size_t bytes) override {
    if (held_ + bytes > bytes_)
      throw OutOfMemoryError("the card has {} B left, not {}", bytes_ - held_, bytes);
    held_ += bytes;
    return WrappedDevice::allocate(bytes);
  }
  void deallocate(void* memory, std::size_t bytes) override {
    held_ -= bytes;
    WrappedDevice::deallocate(memory, bytes);
  }

 private:
  static DeviceInfo info_of(const Device& inner, std::size_t bytes) {
    DeviceInfo info = inner.info();
    info.name = "small";
    info.total_memory = bytes;
    return info;
  }

  std::size_t bytes_, claimed_, held_ = 0;
};

}  // namespace ridge::testing
