// Every kernel among which the tuner chooses, on a GPU: the vendor's products, our own, and those
// with a gate behind them.

#include "tests/gpu/choose.h"
#include "tests/gpu/gpu.h"
#include "tests/ops/cases.h"

namespace ridge {
namespace {

using testing::Choose;

class TunedProducts : public testing::GpuTest {
 protected:
  template <class T>
  void expect_all_right(const Sample<T>& sample) {
    for (const DType dtype : only_16_bit) expect_all_right(sample, dtype);
  }
  template <class T>
  void expect_all_right(const Sample<T>& sample, DType dtype) {
    std::vector<TensorType> in = testing::operand_types(sample, dtype);
    const Op op(sample.op);
    const std::vector<TensorType> out = sample.op.infer(in);
    const auto values = testing::operand_values(sample, in);
    const auto expected = testing::run_reference(op, in, out, values);
    for (std::size_t candidate = 0;; ++candidate) {
      SCOPED_TRACE(fmt::format("{} of {}, candidate {}", T::name, list_of(in), candidate));
      Choose tuner(candidate);
      const KernelChoice choice{.products = Products::tuned, .tuner = &tuner};
      const auto actual = testing::run_kernel(device(), op, in, out, values, choice);
      for (std::size_t o = 0; o < out.size(); ++o)
        testing::expect_close(testing::decode(actual[o], out[o].dtype), expected[o],
                              testing::tolerance_of_result<T>(out[o], in));
      if (tuner.is_last()) break;
    }
  }
};

// Extents that are no multiples of a tile in any direction, of less than one, and of many.
TEST_F(TunedProducts, AreRightInEveryLayout) {
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{8, 8, 8}, {128, 256, 64}, {200, 136, 264}, {1160, 1032, 40}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const auto& result : {std::optional<DType>{}, std::optional(DType::f32)})
          expect_all_right<MatMul>({{.trans_a = ta, .trans_b = tb, .out = result},
                                    {{{DType::f32, ta ? Shape{k, m} : Shape{m, k}}},
                                     {{DType::f32, tb ? Shape{n, k} : Shape{k, n}}}}});
}

TEST_F(TunedProducts, AreRightWithAGateBehindThem) {
  for (const Sample<LinearSwiGlu>& sample : LinearSwiGlu::samples()) expect_all_right(sample);
  for (const Sample<LinearSwiGluGrad>& sample : LinearSwiGluGrad::samples())
    expect_all_right(sample);
}

TEST_F(TunedProducts, AreRightWithAnEpilogue) {
  for (const Sample<Linear>& sample : Linear::samples())
    for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) expect_all_right(sample, dtype);
}

}  // namespace
}  // namespace ridge
