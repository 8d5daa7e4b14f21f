// A device that wraps another forgets no call: each reaches the other device, but for those that it
// is there to change.

#include "ridge/exercise/devices.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "ridge/ops/op.h"

namespace ridge {
namespace {

// Counts the calls of each function.
class CallCounter final : public Device {
 public:
  CallCounter() : Device({.name = "counter"}) {}

  PreparedKernel prepare(const Op&, Types, Types, const KernelChoice&) override {
    ++calls["prepare"];
    return {.kernel = make_kernel([this](const Launch&) { ++calls["launch"]; })};
  }
  void* allocate(std::size_t) override { return ++calls["allocate"], nullptr; }
  void deallocate(void*, std::size_t) override { ++calls["deallocate"]; }
  std::size_t available_memory() const override { return ++calls["available_memory"], 0; }
  void upload(void*, const void*, std::size_t) override { ++calls["upload"]; }
  void download(void*, const void*, std::size_t) override { ++calls["download"]; }
  void clear(void*, std::size_t) override { ++calls["clear"]; }
  void synchronize() override { ++calls["synchronize"]; }
  void download_later(void*, const void*, std::size_t) override { ++calls["download_later"]; }
  void* allocate_host(std::size_t) override { return ++calls["allocate_host"], nullptr; }
  void deallocate_host(void*) override { ++calls["deallocate_host"]; }
  void mark(std::size_t) override { ++calls["mark"]; }
  void wait(std::size_t) override { ++calls["wait"]; }
  double seconds_between(std::size_t, std::size_t) const override {
    return ++calls["seconds_between"], 0;
  }
  KernelPtr capture(std::span<const DeviceWork>) override {
    ++calls["capture"];
    return make_kernel([](const Launch&) {});
  }
  DeviceTools& tools() override { return ++calls["tools"], tools_; }

  mutable std::map<std::string, int> calls;

 private:
  DeviceTools tools_;
};

// Every function of a device once, and a launch.
void call_all(Device& device) {
  device.prepare(Op{Relu{}}, {}, {}).kernel->launch({});
  device.allocate(64);
  device.deallocate(nullptr, 64);
  device.available_memory();
  device.upload(nullptr, nullptr, 0);
  device.download(nullptr, nullptr, 0);
  device.clear(nullptr, 0);
  device.synchronize();
  device.download_later(nullptr, nullptr, 0);
  device.allocate_host(64);
  device.deallocate_host(nullptr);
  device.mark(0);
  device.mark(1);
  device.wait(1);
  device.seconds_between(0, 1);
  device.capture({});
  device.tools();
}

using Calls = std::map<std::string, int>;

TEST(WrappedDevice, HandsOnEveryCall) {
  CallCounter counter;
  WrappedDevice wrapped(counter);
  call_all(wrapped);
  EXPECT_EQ(counter.calls, (Calls{{"prepare", 1},
                                  {"launch", 1},
                                  {"allocate", 1},
                                  {"deallocate", 1},
                                  {"available_memory", 1},
                                  {"upload", 1},
                                  {"download", 1},
                                  {"clear", 1},
                                  {"synchronize", 1},
                                  {"download_later", 1},
                                  {"allocate_host", 1},
                                  {"deallocate_host", 1},
                                  {"mark", 2},
                                  {"wait", 1},
                                  {"seconds_between", 1},
                                  {"capture", 1},
                                  {"tools", 1}}));
  EXPECT_EQ(&wrapped.tools(), &counter.tools());
}

// It has marks of its own, its downloads wait, and nothing is captured: what it would launch at
// once would run before what is in its queue.
TEST(QueuedDevice, HandsOnAllButMarksAndCaptures) {
  CallCounter counter;
  {
    QueuedDevice queued(counter);
    call_all(queued);
    EXPECT_EQ(queued.capture({}), nullptr);
  }
  EXPECT_EQ(counter.calls, (Calls{{"prepare", 1},
                                  {"launch", 1},
                                  {"allocate", 1},
                                  {"deallocate", 1},
                                  {"available_memory", 1},
                                  {"upload", 1},
                                  {"download", 2},
                                  {"clear", 1},
                                  {"synchronize", 1},
                                  {"allocate_host", 1},
                                  {"deallocate_host", 1},
                                  {"tools", 1}}));
}

}  // namespace
}  // namespace ridge
