// tf32 as f16 with a scale, on the GPU: tensors of many kinds of magnitudes, products by every
// kernel, attention, and training. Skipped where there is no GPU.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ridge/gpu/device.h"
#include "ridge/ops/attention.h"
#include "ridge/run/executor.h"
#include "ridge/session/session.h"
#include "tests/base/temporary_cache.h"
#include "tests/gpu/choose.h"
#include "tests/gpu/gpu.h"
#include "tests/ops/cases.h"

namespace ridge {
namespace {

using testing::Choose;
using testing::Reals;

class ScaledOnGpu : public testing::GpuTest {
 protected:
  static Reals run(const Op& op, Types in, const std::vector<Reals>& values,
                   const KernelChoice& choice, std::size_t output = 0) {
    const std::vector<TensorType> out = infer(op, in);
    const auto bytes = testing::run_kernel(device(), op, in, out, values, choice);
    return testing::decode(bytes[output], out[output].dtype);
  }
};

Reals normal(std::int64_t count, unsigned seed, double factor = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> distribution;
  Reals values(static_cast<std::size_t>(count));
  for (double& x : values) x = static_cast<float>(factor * distribution(random));
  return values;
}

double relative_error(const Reals& actual, const Reals& expected) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / size);
}

TEST_F(ScaledOnGpu, QuantizesLargeTensorsExactly) {
  for (const Shape& shape : {Shape{2048, 1024}, Shape{48, 16384}, Shape{1000, 1000},
                             Shape{1040, 1004}, Shape{7, 100003}}) {
    const Quantize op{.to = DType::f16};
    const TensorType in[] = {{DType::f32, shape}};
    SCOPED_TRACE(in[0].to_string());
    const std::vector<TensorType> out = op.infer(in);
    std::vector<Reals> x{normal(shape.numel(), 3)};
    for (std::size_t i = 0; i < x[0].size(); i += 3) x[0][i] = static_cast<float>(x[0][i] * 1e-9);
    x[0][x[0].size() - 2] = -11.0;  // the largest, at the end
    const std::vector<Reals> expected = testing::run_reference(op, in, out, x);
    const auto actual = testing::run_kernel(device(), op, in, out, x);
    for (std::size_t o = 0; o < out.size(); ++o)
      EXPECT_EQ(testing::decode(actual[o], out[o].dtype), expected[o]) << "output " << o;
  }
}

TEST_F(ScaledOnGpu, DoesNotHideWhatIsNotFinite) {
  for (const double odd : {std::nan(""), HUGE_VAL}) {
    const TensorType in[] = {{DType::f32, {128, 64}}};
    const Quantize op{.to = DType::f16};
    std::vector<Reals> x{Reals(128 * 64, 0.5)};
    x[0][77] = odd;
    EXPECT_TRUE(std::isnan(run(op, in, x, {}, 1)[77]));
  }
}

// By every kernel that the tuner may choose, with and without a sum before.
TEST_F(ScaledOnGpu, MultipliesByEveryKernel) {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{200, 136, 264}, {1160, 1032, 40}})
    for (const auto& [ta, tb] :
         {std::pair{false, true}, {false, false}, {true, false}, {true, true}})
      for (const bool adds : {false, true}) {
        const ScaledMatMul op{.out = DType::f32, .trans_a = ta, .trans_b = tb};
        std::vector<TensorType> in{{DType::f16, ta ? Shape{k, m} : Shape{m, k}},
                                   {DType::f16, tb ? Shape{n, k} : Shape{k, n}},
                                   {DType::f32, {}},
                                   {DType::f32, {}}};
        if (adds) in.push_back({DType::f32, {m, n}});
        std::vector<Reals> values;
        for (std::size_t i = 0; i < in.size(); ++i)
          values.push_back(
              testing::sample_values({in[i]}, in[i].dtype, static_cast<std::uint64_t>(i)));
        values[2] = {0x1p-20}, values[3] = {0x1p18};
        const std::vector<TensorType> out = op.infer(in);
        const Reals expected = testing::run_reference(op, in, out, values)[0];
        for (std::size_t candidate = 0;; ++candidate) {
          SCOPED_TRACE(fmt::format("{}, candidate {}", list_of(in), candidate));
          Choose tuner(candidate);
          const Reals actual = run(op, in, values, {.products = Products::tuned, .tuner = &tuner});
          testing::expect_close(actual, expected, testing::tolerance_of(out[0], in));
          if (tuner.is_last()) break;
        }
      }
}

// No further from what is exact than the library's tf32, whatever the magnitudes.
TEST_F(ScaledOnGpu, IsAsExactAsTf32) {
  constexpr std::int64_t m = 96, n = 128, k = 1024;
  for (const double spread : {0.0, 2.0, 4.0}) {
    std::mt19937 random(7);
    std::normal_distribution<double> distribution;
    std::vector<Reals> values{normal(m * k, 1, 3e-6), normal(n * k, 2, 0.02)};
    for (Reals& operand : values)
      for (double& x : operand) x = static_cast<float>(x * std::exp(spread * distribution(random)));
    const TensorType in[] = {{DType::f32, {m, k}}, {DType::f32, {n, k}}};
    const MatMul op{.trans_b = true};
    const Reals exact = testing::run_reference(op, in, op.infer(in), values)[0];
    const double tf32 = relative_error(run(op, in, values, {.tf32 = true}), exact);
    std::vector<TensorType> halves;
    std::vector<Reals> scaled, scales;
    for (std::size_t i = 0; i < 2; ++i) {
      const Quantize quantize{.to = DType::f16};
      const Types one(&in[i], 1);
      scales.push_back(run(quantize, one, {values[i]}, {}, 0));
      scaled.push_back(run(quantize, one, {values[i]}, {}, 1));
      halves.push_back({DType::f16, in[i].shape});
    }
    for (Reals& scale : scales) {
      scaled.push_back(scale);
      halves.push_back({DType::f32, {}});
    }
    const double own =
        relative_error(run(ScaledMatMul{.out = DType::f32}, halves, scaled, {}), exact);
    fmt::print("spread {}: tf32 {:.2e}, scaled {:.2e}\n", spread, tf32, own);
    EXPECT_LE(own, 1.02 * tf32);
  }
}

// Against the reference in double, as far from it as 11 bits are; the gradient that comes in is as
// small as a model's.
TEST_F(ScaledOnGpu, AttendsInTf32sPrecision) {
  const KernelChoice choice{.tf32 = true, .scaled = true};
  for (const std::int64_t head_dim : {32, 64, 128})
    for (const std::int64_t seq : {1, 100, 128, 333})
      for (const bool causal : {true, false}) {
        SCOPED_TRACE(fmt::format("head_dim {}, {} positions, causal {}", head_dim, seq, causal));
        const AttentionHeads heads{.n_heads = 4,
                                   .n_kv_heads = 2,
                                   .head_dim = head_dim,
                                   .scale = static_cast<float>(1 / std::sqrt(head_dim)),
                                   .causal = causal,
                                   .rope_theta = 10000.0f};
        const std::int64_t batch = seq < 128 ? 2 : 1;
        const TensorType qkv{DType::f32, {batch, seq, heads.q_dim() + 2 * heads.kv_dim()}};
        const TensorType y{DType::f32, {batch, seq, heads.q_dim()}};
        const TensorType lse{DType::f32, {batch, heads.n_heads, seq}};
        const Op forward(Attention{heads}), backward(AttentionGrad{heads});
        const std::vector<Reals> x{normal(qkv.numel(), 11)};
        const TensorType in[] = {qkv}, back[] = {y, y, lse, qkv};
        const auto expected = testing::run_reference(forward, in, infer(forward, in), x);
        const auto bytes =
            testing::run_kernel(device(), forward, in, infer(forward, in), x, choice);
        const Reals actual = testing::decode(bytes[0], DType::f32);
        EXPECT_LT(relative_error(actual, expected[0]), 6e-4);
        const Reals sums = testing::decode(bytes[1], DType::f32);
        testing::expect_close(sums, expected[1], {3e-3, 0});
        EXPECT_EQ(testing::run_kernel(device(), forward, in, infer(forward, in), x, choice), bytes);

        const std::vector<Reals> given{normal(y.numel(), 12, 2e-6), actual, sums, x[0]};
        const auto want = testing::run_reference(backward, back, infer(backward, back), given);
        const auto got =
            testing::run_kernel(device(), backward, back, infer(backward, back), given, choice);
        if (seq > 1) {
          EXPECT_LT(relative_error(testing::decode(got[0], DType::f32), want[0]), 1e-3);
        }
        EXPECT_EQ(
            testing::run_kernel(device(), backward, back, infer(backward, back), given, choice),
            got);
      }
}

// Gradients of zero, and what is not finite.
TEST_F(ScaledOnGpu, AttendsToOddTensors) {
  const KernelChoice choice{.tf32 = true, .scaled = true};
  const AttentionHeads heads{.n_heads = 2, .n_kv_heads = 1, .head_dim = 64, .causal = true};
  const TensorType qkv{DType::f32, {1, 130, 256}}, y{DType::f32, {1, 130, 128}};
  const TensorType back[] = {y, y, {DType::f32, {1, 2, 130}}, qkv};
  const Op backward(AttentionGrad{heads});
  std::vector<Reals> values{Reals(130 * 128, 0.0), Reals(130 * 128, 0.0), Reals(2 * 130, 0.0),
                            Reals(130 * 256, 0.0)};
  EXPECT_EQ(run(backward, back, values, choice), Reals(130 * 256, 0.0));
  values[3][5] = HUGE_VAL;
  values[0][7] = 1.0;
  EXPECT_TRUE(std::isnan(run(backward, back, values, choice)[0]));
}

// Steps of v4 are captured from the third on: scales are found anew in each, without the host.
TEST_F(ScaledOnGpu, TrainsAsWithout) {
  const TemporaryCache cache;
  RunOptions o;
  o.hidden_dim = 128;
  o.n_heads = 2;
  o.dtype = "tf32";
  o.device = "cuda";
  o.batch_size = 4;
  o.seq_len = 200;
  o.learning_rate = 2e-3;
  o.max_grad_norm = 1;
  o.version = "v4";
  o.resolve();
  for (const std::int64_t batches : {1, 2}) {
    o.gradient_accumulation_steps = batches;
    RunOptions launched = o, wide = o;
    launched.disable_pass = "planned-memory,concurrent-kernels";
    wide.disable_pass = "scaled-products";
    Session a(o, device()), b(launched, device()), c(wide, device());
    double most = 0;
    for (int step = 0; step < 12; ++step) {
      const double loss = a.step().loss;
      EXPECT_EQ(loss, b.step().loss) << "step " << step;
      most = std::max(most, std::abs(loss - c.step().loss));
    }
    fmt::print("{} batches: losses differ by {:.1e} at most\n", batches, most);
    EXPECT_GT(most, 0);
    EXPECT_LT(most, 1e-3);
  }
}

}  // namespace
}  // namespace ridge
