// What the samples of attention do not show of its kernels on the GPU: the tiles of large heads,
// several tiles of queries and keys, operands that are not aligned, and what is refused.

#include "ridge/ops/attention.h"

#include <fmt/format.h>

#include <cmath>

#include "ridge/base/error.h"
#include "tests/gpu/gpu.h"
#include "tests/ops/sample_runner.h"

namespace ridge {
namespace {

using testing::Reals;

TensorType f32(Shape shape) { return {DType::f32, shape}; }

class AttentionOnGpu : public testing::GpuTest {
 protected:
  // The kernel against the reference, and against itself.
  static std::vector<Reals> check(const Op& op, Types in, const std::vector<Reals>& values,
                                  double tolerance) {
    const std::vector<TensorType> out = infer(op, in);
    const auto expected = testing::run_reference(op, in, out, values);
    const auto actual = testing::run_kernel(device(), op, in, out, values);
    for (std::size_t o = 0; o < out.size(); ++o) {
      SCOPED_TRACE(fmt::format("{}: output {}", name_of(op), o));
      testing::expect_close(testing::decode(actual[o], out[o].dtype), expected[o],
                            {tolerance, tolerance});
    }
    for (int run = 0; run < 3; ++run)
      EXPECT_EQ(testing::run_kernel(device(), op, in, out, values), actual);
    return expected;
  }

  static void check_both(AttentionHeads heads, std::int64_t batch, std::int64_t seq, DType dtype,
                         double tolerance) {
    heads.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads.head_dim)));
    const TensorType qkv{dtype, {batch, seq, heads.q_dim() + 2 * heads.kv_dim()}};
    const TensorType y{dtype, {batch, seq, heads.q_dim()}};
    const Reals x = testing::sample_values({qkv}, dtype, 0);
    const auto forward = check(Attention{heads}, std::array{qkv}, {x}, tolerance);
    std::vector<Reals> values{testing::sample_values({y}, dtype, 1), forward[0], forward[1], x};
    for (double& element : values[1])
      element = dtype == DType::bf16 ? static_cast<float>(BFloat16(static_cast<float>(element)))
                                     : static_cast<float>(element);
    for (double& element : values[2]) element = static_cast<float>(element);
    check(AttentionGrad{heads}, std::array{y, y, f32({batch, heads.n_heads, seq}), qkv}, values,
          tolerance);
  }
};

TEST_F(AttentionOnGpu, HoldsForAllTiles) {
  for (const std::int64_t head_dim : {24, 32, 60, 64, 100, 128, 180, 256})
    for (const bool causal : {true, false}) {
      SCOPED_TRACE(fmt::format("head_dim {}, causal {}", head_dim, causal));
      check_both({.n_heads = 4,
                  .n_kv_heads = 2,
                  .head_dim = head_dim,
                  .causal = causal,
                  .rope_theta = 10000.0f},
                 2, 150, DType::f32, 1e-5);
    }
}

TEST_F(AttentionOnGpu, HoldsForBf16) {
  for (const std::int64_t head_dim : {32, 64, 128, 256})
    check_both({.n_heads = 4, .n_kv_heads = 1, .head_dim = head_dim, .rope_theta = 500.0f}, 1, 200,
               DType::bf16, 1.5e-2);
}

// One tile of queries and keys, whole or not, has kernels of its own on some cards.
TEST_F(AttentionOnGpu, HoldsForShortSequences) {
  for (const std::int64_t head_dim : {32, 64})
    for (const std::int64_t seq : {1, 64, 77, 128})
      for (const std::int64_t n_kv_heads : {1, 2, 4})
        for (const bool causal : {true, false}) {
          SCOPED_TRACE(fmt::format("head_dim {}, seq {}, {} key heads, causal {}", head_dim, seq,
                                   n_kv_heads, causal));
          check_both({.n_heads = 4,
                      .n_kv_heads = n_kv_heads,
                      .head_dim = head_dim,
                      .causal = causal,
                      .rope_theta = seq == 64 ? 0.0f : 100.0f},
                     3, seq, DType::bf16, 1.5e-2);
        }
}

TEST_F(AttentionOnGpu, HoldsForLongSequences) {
  check_both({.n_heads = 2, .n_kv_heads = 1, .head_dim = 64, .rope_theta = 10000.0f}, 1, 1500,
             DType::f32, 2e-5);
}

// Rows of 3 * 3 * 5 elements: no two heads are aligned alike.
TEST_F(AttentionOnGpu, HoldsForUnalignedRows) {
  check_both({.n_heads = 3, .n_kv_heads = 3, .head_dim = 5}, 2, 140, DType::f32, 1e-5);
}

TEST_F(AttentionOnGpu, RefusesHeadsThatNoTileHolds) {
  const Attention op{{.n_heads = 1, .n_kv_heads = 1, .head_dim = 258}};
  const std::vector<TensorType> in{f32({1, 4, 3 * 258})}, out = op.infer(in);
  EXPECT_THROW(device().prepare(op, in, out), DeviceError);
}

}  // namespace
}  // namespace ridge
