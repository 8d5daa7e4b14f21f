// Tensors in 8 bits at the sizes of training: tiles that are whole and cut, more magnitudes than
// one block finds, products as large as a step's, and training itself. Skipped where there is no
// GPU that has such products.

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "ridge/gpu/device.h"
#include "ridge/run/executor.h"
#include "ridge/session/session.h"
#include "tests/base/temporary_cache.h"
#include "tests/gpu/gpu.h"
#include "tests/ops/cases.h"

namespace ridge {
namespace {

using testing::Reals;

class Float8OnGpu : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (!device().target().multiplies_float8)
      GTEST_SKIP() << "this GPU multiplies no floats of 8 bits";
  }
};

TEST_F(Float8OnGpu, QuantizesLargeTensorsExactly) {
  for (const Shape& shape : {Shape{2048, 1024}, Shape{8192, 136}, Shape{48, 16384},
                             Shape{1000, 1000}, Shape{1040, 1000}, Shape{7, 100003}})
    for (const DType from : {DType::f32, DType::bf16})
      for (const DType to : {DType::f8e4m3, DType::f8e5m2}) {
        const Quantize op{.to = to, .transposed = true};
        const TensorType in[] = {{from, shape}};
        SCOPED_TRACE(fmt::format("{} to {}", in[0].to_string(), name_of(to)));
        const std::vector<TensorType> out = op.infer(in);
        std::vector<Reals> x{testing::sample_values({in[0], -3.0, 3.0}, from, 5)};
        x[0][x[0].size() - 2] = -11.0;  // the largest, at the end
        const std::vector<Reals> expected = testing::run_reference(op, in, out, x);
        const auto actual = testing::run_kernel(device(), op, in, out, x);
        for (std::size_t o = 0; o < out.size(); ++o)
          EXPECT_EQ(testing::decode(actual[o], out[o].dtype), expected[o]) << "output " << o;
      }
}

TEST_F(Float8OnGpu, DoesNotHideWhatIsNotFinite) {
  for (const double odd : {std::nan(""), HUGE_VAL}) {
    const TensorType in[] = {{DType::bf16, {128, 64}}};
    const Quantize op{.transposed = true};
    const std::vector<TensorType> out = op.infer(in);
    std::vector<Reals> x{Reals(128 * 64, 0.5)};
    x[0][77] = odd;
    const auto actual = testing::run_kernel(device(), op, in, out, x);
    EXPECT_TRUE(std::isnan(testing::decode(actual[1], op.to)[77]));
    EXPECT_TRUE(std::isnan(testing::decode(actual[2], op.to)[(77 % 64) * 128 + 77 / 64]));
  }
}

// Against products in f32 of the same operands, on the GPU: the double loops would take too long.
TEST_F(Float8OnGpu, MultipliesLargeMatrices) {
  constexpr std::int64_t m = 1024, n = 768, k = 4096;
  for (const DType left : {DType::f8e4m3, DType::f8e5m2})
    for (const bool fast : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", name_of(left), fast ? " fast" : ""));
      const TensorType a{left, {m, k}}, b{DType::f8e4m3, {n, k}}, scalar{DType::f32, {}};
      const std::vector<Reals> values{testing::sample_values({a}, left, 1),
                                      testing::sample_values({b}, DType::f8e4m3, 2),
                                      {0.25},
                                      {3.0}};
      const TensorType in[] = {a, b, scalar, scalar};
      const TensorType wide[] = {{DType::f32, a.shape}, {DType::f32, b.shape}};
      const ScaledMatMul op{.out = DType::f32, .fast_accumulation = fast};
      const std::vector<TensorType> out = op.infer(in);
      const auto multiplied = [&](const Op& product, Types types, const std::vector<Reals>& x) {
        return testing::decode(testing::run_kernel(device(), product, types, out, x)[0],
                               DType::f32);
      };
      const Reals got = multiplied(op, in, values);
      const Reals want = multiplied(MatMul{.trans_b = true}, wide, {values[0], values[1]});
      double difference = 0, size = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        const double w = 0.75 * want[i];
        difference += (got[i] - w) * (got[i] - w);
        size += w * w;
      }
      const double error = std::sqrt(difference / size);
      std::cout << name_of(left) << (fast ? " fast: " : ": ") << error << "\n";
      EXPECT_LT(error, fast ? 2e-2 : 2e-3);
    }
}

// Steps of v4 are captured from the third on: scales are found anew in each, without the host.
TEST_F(Float8OnGpu, TrainsAlikeCapturedAndLaunched) {
  const TemporaryCache cache;
  RunOptions o;
  o.hidden_dim = 128;
  o.dtype = "fp8";
  o.device = "cuda";
  o.batch_size = 4;
  o.seq_len = 64;
  o.learning_rate = 2e-3;
  o.disable_pass = "tuned-products";
  o.version = "v4";
  o.resolve();
  RunOptions launched = o, wide = o;
  launched.disable_pass += ",planned-memory,concurrent-kernels";
  wide.dtype = "bf16";
  Session a(o, device()), b(launched, device()), c(wide, device());
  for (int step = 0; step < 20; ++step) {
    const double loss = a.step().loss;
    EXPECT_EQ(loss, b.step().loss) << "step " << step;
    EXPECT_NEAR(loss, c.step().loss, 0.05) << "step " << step;
  }
}

}  // namespace
}  // namespace ridge
