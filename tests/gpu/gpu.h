#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "ridge/gpu/device.h"

namespace ridge::testing {

// A test that needs a GPU, and is skipped where there is none.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "there is no GPU here";
  }
  // Opened once for all tests.
  static Device& device() {
    static const std::unique_ptr<Device> opened = open_gpu({.deterministic = true});
    return *opened;
  }
};

}  // namespace ridge::testing
