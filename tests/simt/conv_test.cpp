// All plans of the portable convolutions, by the samples of the operators in f32: the suite of
// operators has the one that is expected to be the fastest, in every dtype.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string_view>

#include "ridge/gpu/device.h"
#include "tests/gpu/gpu.h"
#include "tests/ops/cases.h"

namespace ridge {
namespace {

// Takes a candidate by its number; the first where there is none of it.
class Take final : public Tuner {
 public:
  explicit Take(std::size_t candidate) : candidate_(candidate) {}
  std::size_t choose(std::string_view, std::size_t candidates,
                     const std::function<void(std::size_t)>&) override {
    most = candidates;
    return std::min(candidate_, candidates - 1);
  }
  void tell(std::string_view, std::string_view) override {}

  std::size_t most = 1;

 private:
  std::size_t candidate_;
};

template <class T>
class EveryConvolution : public testing::GpuTest {};
using Convolutions = ::testing::Types<Conv2d, Conv2dInputGrad, Conv2dWeightGrad>;
TYPED_TEST_SUITE(EveryConvolution, Convolutions, testing::OperatorName);

TYPED_TEST(EveryConvolution, IsRightByEveryPlan) {
  testing::for_each_case<TypeParam>([&](const Sample<TypeParam>& sample, Types in) {
    if (in[0].dtype != DType::f32) return;
    const Op op(sample.op);
    const std::vector<TensorType> out = sample.op.infer(in);
    const auto values = testing::operand_values(sample, in);
    const auto expected = testing::run_reference(op, in, out, values);
    testing::Tolerance tolerance = testing::tolerance_of_result(sample.op, out[0], in);
    const double terms =
        static_cast<double>(sample.op.cost(in, out).macs) / static_cast<double>(out[0].numel());
    tolerance.absolute = std::max(tolerance.absolute, 2 * terms * 0x1p-24);
    for (std::size_t candidate = 1, most = 2; candidate < most; ++candidate) {
      SCOPED_TRACE(fmt::format("candidate {}", candidate));
      Take tuner(candidate);
      const auto actual =
          testing::run_kernel(this->device(), op, in, out, values, {.tuner = &tuner}, 0);
      testing::expect_close(testing::decode(actual[0], out[0].dtype), expected[0], tolerance);
      most = tuner.most;
    }
  });
}

}  // namespace
}  // namespace ridge
