// What the samples of attention do not show of its kernels on the GPU: the tiles of large heads,
// several tiles of queries and keys, operands that are not aligned, and what is refused.

#include "ridge/ops/attention.h"

#include <fmt/format.h>

#include <cmath>
#include <tuple>

#include "ridge/base/error.h"
#include "tests/gpu/choose.h"
#include "tests/gpu/gpu.h"
#include "tests/ops/sample_runner.h"
#include "tests/ops/types.h"

namespace ridge {
namespace {

using testing::Reals;

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

  // All candidates' kernels against the reference; where sums have no fixed order, on a device that
  // does not ask for one.
  static void check_candidates(const Op& op, Types in, const std::vector<Reals>& values,
                               double tolerance, Device& device) {
    const std::vector<TensorType> out = infer(op, in);
    const auto expected = testing::run_reference(op, in, out, values);
    for (std::size_t candidate = 0;; ++candidate) {
      testing::Choose choose(candidate);
      const auto actual = testing::run_kernel(device, op, in, out, values, {.tuner = &choose});
      for (std::size_t o = 0; o < out.size(); ++o) {
        SCOPED_TRACE(fmt::format("{} by candidate {}, {}: output {}", name_of(op), candidate,
                                 choose.told, o));
        testing::expect_close(testing::decode(actual[o], out[o].dtype), expected[o],
                              {tolerance, tolerance});
      }
      if (choose.is_last()) return;
    }
  }

  void check_both(AttentionHeads heads, std::int64_t batch, std::int64_t seq, DType dtype,
                  double tolerance) {
    if (!part_.has_next()) return;
    heads.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads.head_dim)));
    const TensorType qkv{dtype, {batch, seq, heads.q_dim() + 2 * heads.kv_dim()}};
    const TensorType y{dtype, {batch, seq, heads.q_dim()}};
    const Reals x = testing::sample_values({qkv}, dtype, 0);
    const auto forward = check(Attention{heads}, std::array{qkv}, {x}, tolerance);
    std::vector<Reals> values{testing::sample_values({y}, dtype, 1), forward[0], forward[1], x};
    for (double& element : values[1]) element = testing::rounded(element, dtype);
    for (double& element : values[2]) element = static_cast<float>(element);
    check(AttentionGrad{heads}, std::array{y, y, f32({batch, heads.n_heads, seq}), qkv}, values,
          tolerance);
  }

 private:
  testing::Part part_;
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

TEST_F(AttentionOnGpu, HoldsFor16Bits) {
  for (const auto& [dtype, tolerance] : {std::pair{DType::bf16, 1.5e-2}, {DType::f16, 2e-3}})
    for (const std::int64_t head_dim : {32, 64, 128, 256})
      for (const bool causal : {true, false}) {
        SCOPED_TRACE(fmt::format("{}, head_dim {}, causal {}", name_of(dtype), head_dim, causal));
        check_both({.n_heads = 4,
                    .n_kv_heads = 1,
                    .head_dim = head_dim,
                    .causal = causal,
                    .rope_theta = 500.0f},
                   1, 200, dtype, tolerance);
      }
}

// The tiles of sm90 for long sequences, and its sum of dq over keys in no fixed order.
TEST_F(AttentionOnGpu, HoldsForLongSequencesOf16BitsInAnyOrder) {
  const std::unique_ptr<Device> unordered = open_gpu({.deterministic = false});
  for (const auto& [head_dim, seq, dtype] :
       {std::tuple(128, 1100, DType::bf16), {128, 1100, DType::f16}, {64, 2100, DType::f16}}) {
    SCOPED_TRACE(fmt::format("{}, head_dim {}", name_of(dtype), head_dim));
    const AttentionHeads heads{.n_heads = 1, .n_kv_heads = 1, .head_dim = head_dim, .scale = 0.1f};
    const TensorType x{dtype, {1, seq, head_dim}};
    const std::vector<TensorType> in{x, x, x};
    std::vector<Reals> values;
    for (std::uint64_t i = 0; i < 4; ++i) values.push_back(testing::sample_values({x}, dtype, i));
    const std::vector<Reals> qkv(values.begin(), values.begin() + 3);
    const Attention forward{heads};
    const std::vector<TensorType> results = forward.infer(in);
    const auto y = testing::run_reference(forward, in, results, qkv);
    const double tolerance = dtype == DType::f16 ? 3e-3 : 2e-2;
    const auto expect_near = [&](const Op& op, const std::vector<TensorType>& operands,
                                 const std::vector<Reals>& given,
                                 const std::vector<Reals>& wanted) {
      const std::vector<TensorType> out = infer(op, operands);
      const auto actual = testing::run_kernel(*unordered, op, operands, out, given);
      for (std::size_t o = 0; o < out.size(); ++o) {
        SCOPED_TRACE(fmt::format("{}: output {}", name_of(op), o));
        testing::expect_close(testing::decode(actual[o], out[o].dtype), wanted[o],
                              {tolerance, tolerance});
      }
    };
    expect_near(forward, in, qkv, y);
    std::vector<TensorType> operands{x, results[0], results[1]};
    operands.insert(operands.end(), in.begin(), in.end());
    std::vector<Reals> given{values[3], y[0], y[1]};
    for (std::size_t i = 0; i < 2; ++i)
      for (double& element : given[1 + i]) element = testing::rounded(element, results[i].dtype);
    given.insert(given.end(), qkv.begin(), qkv.end());
    const AttentionGrad backward{heads};
    const auto gradients =
        testing::run_reference(backward, operands, backward.infer(operands), given);
    expect_near(backward, operands, given, gradients);
  }
}

// What the tuner may choose, whatever is expected of it: sequences shorter and longer than those
// that a kernel is the first choice for.
TEST_F(AttentionOnGpu, HoldsForEveryCandidate) {
  const std::unique_ptr<Device> unordered = open_gpu({.deterministic = false});
  testing::Part part;
  for (const std::int64_t head_dim : {32, 64, 128})
    for (const std::int64_t seq : {1, 100, 128, 197, 300, 1100})
      for (const bool causal : {true, false})
        for (const auto& [dtype, tolerance] : {std::pair{DType::bf16, 2e-2}, {DType::f16, 3e-3}}) {
          if (!part.has_next()) continue;
          SCOPED_TRACE(fmt::format("{}, head_dim {}, seq {}, causal {}", name_of(dtype), head_dim,
                                   seq, causal));
          const AttentionHeads heads{
              .n_heads = 4,
              .n_kv_heads = 2,
              .head_dim = head_dim,
              .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim))),
              .causal = causal,
              .rope_theta = seq % 2 == 0 ? 1000.0f : 0.0f};
          const TensorType qkv{dtype, {2, seq, heads.q_dim() + 2 * heads.kv_dim()}};
          const TensorType y{dtype, {2, seq, heads.q_dim()}};
          const Reals x = testing::sample_values({qkv}, dtype, 0);
          const Attention forward{heads};
          check_candidates(forward, std::array{qkv}, {x}, tolerance, *unordered);
          const std::vector<TensorType> results = forward.infer(std::array{qkv});
          std::vector<Reals> values =
              testing::run_reference(forward, std::array{qkv}, results, {x});
          for (std::size_t o = 0; o < results.size(); ++o)
            for (double& element : values[o]) element = testing::rounded(element, results[o].dtype);
          values.insert(values.begin(), testing::sample_values({y}, dtype, 1));
          values.push_back(x);
          check_candidates(AttentionGrad{heads}, std::array{y, results[0], results[1], qkv}, values,
                           tolerance, *unordered);
        }
}

// One tile of queries and keys, whole or not, has kernels of its own on some cards.
TEST_F(AttentionOnGpu, HoldsForShortSequences) {
  for (const std::int64_t head_dim : {32, 64})
    for (const std::int64_t seq : {1, 64, 77, 128})
      for (const std::int64_t n_kv_heads : {1, 2, 4})
        for (const bool causal : {true, false}) {
          SCOPED_TRACE(fmt::format("head_dim {}, seq {}, {} key heads, causal {}", head_dim, seq,
                                   n_kv_heads, causal));
          for (const auto& [dtype, tolerance] :
               {std::pair{DType::bf16, 1.5e-2}, {DType::f16, 2e-3}})
            check_both({.n_heads = 4,
                        .n_kv_heads = n_kv_heads,
                        .head_dim = head_dim,
                        .causal = causal,
                        .rope_theta = seq == 64 ? 0.0f : 100.0f},
                       3, seq, dtype, tolerance);
        }
}

// Without mask, up to 256 positions have a kernel of their own on some cards, whose blocks go
// through the heads.
TEST_F(AttentionOnGpu, HoldsForWholeHeads) {
  struct Case {
    std::int64_t batch, seq, n_kv_heads, head_dim;
  };
  for (const auto& [batch, seq, n_kv_heads, head_dim] :
       // Up to 16 positions beyond tiles of 64 go another way.
       {Case{2, 129, 4, 64}, Case{2, 144, 2, 64}, Case{2, 145, 2, 64}, Case{1, 192, 2, 32},
        Case{1, 193, 4, 64}, Case{1, 208, 1, 64}, Case{2, 209, 4, 32}, Case{1, 256, 4, 64},
        Case{34, 197, 4, 64}})
    for (const auto& [dtype, tolerance] : {std::pair{DType::bf16, 1.5e-2}, {DType::f16, 2e-3}}) {
      SCOPED_TRACE(fmt::format("{} x {}, {} key heads of {}", batch, seq, n_kv_heads, head_dim));
      check_both({.n_heads = 4,
                  .n_kv_heads = n_kv_heads,
                  .head_dim = head_dim,
                  .causal = false,
                  .rope_theta = seq == 192 ? 100.0f : 0.0f},
                 batch, seq, dtype, tolerance);
    }
}

// So many that buffers in shared memory are filled several times.
TEST_F(AttentionOnGpu, HoldsForManyWholeHeads) {
  constexpr AttentionHeads heads{
      .n_heads = 4, .n_kv_heads = 4, .head_dim = 32, .scale = 0.2f, .causal = false};
  const TensorType qkv{DType::f16, {110, 133, 3 * heads.q_dim()}};
  check(Attention{heads}, std::array{qkv}, {testing::sample_values({qkv}, DType::f16, 0)}, 2e-3);
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
