// Every operator on the GPU, with the samples and the reference of the CPU's tests. Skipped where
// there is no GPU.

#include "ridge/gpu/device.h"
#include "tests/gpu/gpu.h"
#include "tests/ops/cases.h"

namespace ridge {
namespace {

using testing::Reals;

// Tensor cores take operands of 16 bits: what attention makes on its way, turned queries and keys
// and the probabilities, is rounded to them where the CPU keeps it in f32.
template <class T>
testing::Tolerance tolerance_of(const T& op, const TensorType& result, Types in) {
  testing::Tolerance tolerance = testing::tolerance_of_result(op, result, in);
  // The tensor cores of sm90 keep some 14 bits of a sum of 8-bit products, here of up to 100.
  const DType dtype = in.empty() ? result.dtype : in[0].dtype;
  if (is_float8(dtype)) tolerance.absolute = 0x1p-5;
  if (work_of<T>() == WorkKind::attention && is_16_bit(dtype))
    tolerance.absolute = dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
  // Sums of n terms in a single f32 number, one term after the other: partial sums grow as sqrt(n),
  // and so does the sum of what is lost of each, up to 2^-24 of it. Of ten thousand results the
  // worst was found off by n 2^-24 for n from 288 to 1568.
  if (work_of<T>() == WorkKind::convolution) {
    const std::vector<TensorType> out{result};
    const auto macs = static_cast<double>(op.cost(in, out).macs);
    const double terms = macs / static_cast<double>(result.numel());
    tolerance.absolute = std::max(tolerance.absolute, 2 * terms * 0x1p-24);
  }
  return tolerance;
}

template <class T>
class EveryOperatorOnGpu : public testing::GpuTest {
 protected:
  // Compares the kernel with the reference on every sample, with operands that begin `offset`
  // elements behind an aligned address.
  void expect_agreement(std::size_t offset) {
    testing::Part part;
    testing::for_each_case<T>([&](const Sample<T>& sample, Types in) {
      if (!part.has_next()) return;
      const Op op(sample.op);
      const std::vector<TensorType> out = sample.op.infer(in);
      const std::vector<Reals> values = testing::operand_values(sample, in);
      const std::vector<Reals> expected = testing::run_reference(op, in, out, values);
      const auto launch = [&] {
        return testing::run_kernel(device(), op, in, out, values, {}, offset);
      };
      const auto actual = launch();
      for (std::size_t o = 0; o < out.size(); ++o) {
        SCOPED_TRACE(fmt::format("output {}: {}", o, out[o].to_string()));
        testing::expect_close(testing::decode(actual[o], out[o].dtype), expected[o],
                              tolerance_of(sample.op, out[o], in));
      }
      // What runs kernels on the host (tests/simt) can do nothing else the second time.
      if (offset == 0 && device().name() != "simt") {
        EXPECT_EQ(launch(), actual) << "at a second launch";
      }
    });
  }
};
TYPED_TEST_SUITE(EveryOperatorOnGpu, testing::TypesOf<OpVariant>::type, testing::OperatorName);

TYPED_TEST(EveryOperatorOnGpu, KernelAgreesWithReference) { this->expect_agreement(0); }

// As slices have them, which some operators never read.
TYPED_TEST(EveryOperatorOnGpu, TakesOperandsAlignedToTheirElementsOnly) {
  if (!TakesWholeOperands<TypeParam>) this->expect_agreement(1);
}

}  // namespace
}  // namespace ridge
