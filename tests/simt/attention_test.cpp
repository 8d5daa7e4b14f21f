// Attention on matrix units at the edges of its tiles, of 64 queries and 32 keys: the samples of
// the operators are shorter.

#include <cmath>
#include <vector>

#include "ridge/gpu/device.h"
#include "tests/gpu/gpu.h"
#include "tests/ops/cases.h"

namespace ridge {
namespace {

using testing::Reals;

class AttentionOnUnits : public testing::GpuTest {
 protected:
  // Forward, and backward from what the reference gives.
  static void expect_right(AttentionHeads heads, std::int64_t seq, DType dtype) {
    SCOPED_TRACE(
        fmt::format("{} positions, heads of {} in {}", seq, heads.head_dim, name_of(dtype)));
    heads.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads.head_dim)));
    const TensorType qkv{dtype, {2, seq, heads.q_dim() + 2 * heads.kv_dim()}};
    const TensorType y{dtype, {2, seq, heads.q_dim()}};
    const Reals x = testing::sample_values({qkv}, dtype, 0);
    const std::vector<Reals> forward = check(Attention{heads}, {qkv}, {x});
    std::vector<Reals> values{testing::sample_values({y}, dtype, 1), forward[0], forward[1], x};
    for (double& element : values[1]) element = testing::rounded(element, dtype);
    for (double& element : values[2]) element = static_cast<float>(element);
    check(AttentionGrad{heads}, {y, y, {DType::f32, {2, heads.n_heads, seq}}, qkv}, values);
  }

 private:
  static std::vector<Reals> check(const Op& op, const std::vector<TensorType>& in,
                                  const std::vector<Reals>& values) {
    const std::vector<TensorType> out = infer(op, in);
    const std::vector<Reals> expected = testing::run_reference(op, in, out, values);
    const auto actual = testing::run_kernel(device(), op, in, out, values);
    // What attention makes on its way is rounded too.
    const double tolerance = in[0].dtype == DType::f16 ? 2e-3 : 1.5e-2;
    for (std::size_t o = 0; o < out.size(); ++o) {
      SCOPED_TRACE(fmt::format("{}: output {}", name_of(op), o));
      testing::expect_close(testing::decode(actual[o], out[o].dtype), expected[o],
                            {tolerance, tolerance});
    }
    return expected;
  }
};

TEST_F(AttentionOnUnits, IsRightAtTheEdgesOfTiles) {
  for (const bool causal : {false, true})
    for (const std::int64_t seq : {1, 31, 65}) {
      const DType dtype = causal ? DType::bf16 : DType::f16;
      expect_right({.n_heads = 4, .n_kv_heads = 2, .head_dim = 24, .causal = causal}, seq, dtype);
      expect_right({.n_heads = 1, .n_kv_heads = 1, .head_dim = 128, .causal = causal}, seq, dtype);
    }
  expect_right({.n_heads = 2, .n_kv_heads = 1, .head_dim = 64, .causal = true, .rope_theta = 1e4f},
               130, DType::f16);
}

}  // namespace
}  // namespace ridge
