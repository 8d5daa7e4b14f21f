#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "ridge/gpu/device.h"

namespace ridge::testing {

// Which cases of a test are for this process: with RIDGE_PART=i/n every n-th from the i-th, so that
// several share what a sanitizer makes slow; else all.
class Part {
 public:
  Part() {
    const char* const set = std::getenv("RIDGE_PART");
    if (set && (std::sscanf(set, "%u/%u", &first_, &parts_) != 2 || first_ >= parts_))
      ADD_FAILURE() << "RIDGE_PART is " << set << ", not i/n with i < n";
  }
  bool has_next() { return parts_ == 0 || next_++ % parts_ == first_; }

 private:
  unsigned first_ = 0, parts_ = 0, next_ = 0;
};

// The device of all tests. Opened by the first that needs it and closed after the last, not at
// exit: what the vendor's libraries have loaded by themselves may be gone by then.
class SharedGpu : public ::testing::Environment {
 public:
  Device& device() {
    if (!device_) device_ = open_gpu({.deterministic = true});
    return *device_;
  }
  void TearDown() override { device_.reset(); }

 private:
  std::unique_ptr<Device> device_;
};
inline SharedGpu* const shared_gpu =
    static_cast<SharedGpu*>(::testing::AddGlobalTestEnvironment(new SharedGpu));

// A test that needs a GPU, and is skipped where there is none.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "there is no GPU here";
  }
  static Device& device() { return shared_gpu->device(); }
};

}  // namespace ridge::testing
