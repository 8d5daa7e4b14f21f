// What stands in for the vendor's libraries, on a GPU: every candidate there is without them.

#include "ridge/gpu/device.h"
#include "tests/base/environment.h"
#include "tests/gpu/choose.h"
#include "tests/gpu/gpu.h"
#include "tests/ops/cases.h"

namespace ridge {
namespace {

template <class T>
class WithoutLibraries : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    const ScopedVariables none{{"RIDGE_GPU_LIBRARIES", "none"}};
    device_ = open_gpu({.deterministic = true});
  }
  std::unique_ptr<Device> device_;
};
using Operators = ::testing::Types<MatMul, ScaledMatMul, Linear, LinearSwiGlu, LinearSwiGluGrad,
                                   Conv2d, Conv2dInputGrad, Conv2dWeightGrad>;
TYPED_TEST_SUITE(WithoutLibraries, Operators, testing::OperatorName);

TYPED_TEST(WithoutLibraries, EveryCandidateIsRight) {
  for (const Sample<TypeParam>& sample : TypeParam::samples())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      testing::expect_all_candidates_right(*this->device_, sample, dtype,
                                           {.products = Products::tuned}, 1e-4);
}

}  // namespace
}  // namespace ridge
