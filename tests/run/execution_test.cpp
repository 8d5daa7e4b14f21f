#include "ridge/run/execution.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

Execution of(std::string_view row, std::string_view disable = "", std::string_view dtype = "fp32",
             DeviceKind kind = DeviceKind::gpu) {
  return execution_of(resolve({.row = std::string(row), .disable = std::string(disable)},
                              precision_named(dtype), {.kind = kind}, Use::training));
}

TEST(Execution, IsThatOfTheSchedulesPasses) {
  EXPECT_EQ(of("v3").kernels.products, Products::vendor);
  EXPECT_EQ(of("v4").kernels.products, Products::tuned);
  EXPECT_FALSE(of("v3").kernels.split_bf16);
  EXPECT_TRUE(of("v4").kernels.split_bf16);
  EXPECT_FALSE(of("v4", "split-bf16-products").kernels.split_bf16);
  EXPECT_EQ(of("v4", "split-bf16-products").kernels.products, Products::tuned);
  EXPECT_FALSE(of("v4").kernels.tf32);
  EXPECT_TRUE(of("v1", "", "tf32").kernels.tf32);
  EXPECT_FALSE(of("v3").planned);
  EXPECT_TRUE(of("v4").planned);
}

// Networks under max-autotune get the products that a LLaMA has in v4.
TEST(Execution, OfMaxAutotuneHasTheProductsOfV4) {
  EXPECT_TRUE(of("max-autotune").kernels.split_bf16);
  EXPECT_TRUE(of("max-autotune", "", "tf32").kernels.scaled);
  EXPECT_FALSE(of("default").kernels.split_bf16);
}

TEST(Execution, CapturesOnAGpuAlone) {
  EXPECT_TRUE(of("v4").captured);
  EXPECT_TRUE(of("v4").concurrent);
  EXPECT_FALSE(of("v4", "concurrent-kernels").concurrent);
  EXPECT_FALSE(of("default").captured);
  EXPECT_TRUE(of("reduce-overhead").captured);
  EXPECT_FALSE(of("v4", "", "fp32", DeviceKind::cpu).captured);
}

}  // namespace
}  // namespace ridge
