// All plans of the portable convolutions, by the samples of the operators in f32: the suite of
// operators has the one that is expected to be the fastest, in every dtype.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

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

class PortableConvolutions : public testing::GpuTest {
 protected:
  // By all candidates from one on.
  static void expect_right(const Op& op, Types in, const std::vector<testing::Reals>& values,
                           std::size_t first) {
    const std::vector<TensorType> out = infer(op, in);
    const auto expected = testing::run_reference(op, in, out, values);
    testing::Tolerance tolerance = testing::tolerance_of(out[0], in);
    const double terms =
        static_cast<double>(cost(op, in, out).macs) / static_cast<double>(out[0].numel());
    tolerance.absolute = std::max(tolerance.absolute, 2 * terms * 0x1p-24);
    for (std::size_t candidate = first, most = first + 1; candidate < most; ++candidate) {
      SCOPED_TRACE(fmt::format("{} by candidate {}", name_of(op), candidate));
      Take tuner(candidate);
      const auto actual = testing::run_kernel(device(), op, in, out, values, {.tuner = &tuner}, 0);
      testing::expect_close(testing::decode(actual[0], out[0].dtype), expected[0], tolerance);
      most = tuner.most;
    }
  }
};

template <class T>
class EveryConvolution : public PortableConvolutions {};
using Convolutions = ::testing::Types<Conv2d, Conv2dInputGrad, Conv2dWeightGrad>;
TYPED_TEST_SUITE(EveryConvolution, Convolutions, testing::OperatorName);

TYPED_TEST(EveryConvolution, IsRightByEveryPlan) {
  testing::for_each_case<TypeParam>([&](const Sample<TypeParam>& sample, Types in) {
    if (in[0].dtype == DType::f32)
      this->expect_right(Op(sample.op), in, testing::operand_values(sample, in), 1);
  });
}

// Of so many channels that they are worth tiles, other than samples have.
TEST_F(PortableConvolutions, AreRightInGroups) {
  for (const ImageLayout layout : image_layouts) {
    const ConvGeometry g{.stride = {2, 1}, .padding = {1, 0}, .groups = 2, .layout = layout};
    const auto tensor = [&](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
      return TensorType{DType::f32, ImageShape(n, c, h, w).in(layout)};
    };
    const TensorType x = tensor(2, 32, 5, 4), weight = tensor(48, 16, 3, 2),
                     y = tensor(2, 48, 3, 3);
    const auto check = [&](const Op& op, const std::vector<TensorType>& in) {
      std::vector<testing::Reals> values;
      for (const TensorType& type : in)
        values.push_back(testing::sample_values({type}, type.dtype, values.size()));
      expect_right(op, in, values, 0);
    };
    check(Conv2d{g}, {x, weight});
    check(Conv2dInputGrad{g, x.shape}, {y, weight});
    check(Conv2dWeightGrad{g, weight.shape}, {y, x});
  }
}

}  // namespace
}  // namespace ridge
