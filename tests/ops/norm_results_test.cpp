// A norm is what its definition says, whatever its weights; and where its gradient comes from its
// result, that gradient is the norm's, even where a weight is zero.

#include "tests/ops/norm_results.h"

#include <array>

#include "ridge/cpu/device.h"

namespace ridge {
namespace {

using testing::Reals;

constexpr std::int64_t rows = 5, columns = 9;
constexpr std::size_t zero = 2, negative_zero = 5, small = 7;  // columns
const TensorType x_type{DType::f32, {rows, columns}}, w_type{DType::f32, {columns}},
    rstd_type{DType::f32, {rows}};

struct Values {
  Reals x = testing::sample_values({x_type}, DType::f32, 1);
  Reals dy = testing::sample_values({x_type}, DType::f32, 2);
  Reals weight = testing::sample_values({w_type}, DType::f32, 3);

  Values() {
    weight[zero] = 0;
    weight[negative_zero] = -0.0;
    weight[small] = 0x1p-120;
  }
};

// y and rstd by the CPU's kernel, in f32.
std::array<Reals, 2> norm_of(const Values& v, bool invertible) {
  CpuDevice device(1);
  const std::vector<TensorType> in{x_type, w_type}, out{x_type, rstd_type};
  const auto bytes =
      testing::run_kernel(device, RmsNorm{.invertible = invertible}, in, out, {v.x, v.weight});
  return {testing::decode(bytes[0], DType::f32), testing::decode(bytes[1], DType::f32)};
}

// What the reference, which is in double precision, sums up to with dy.
double weighed(const Reals& x, const Reals& weight, const Reals& dy) {
  const std::vector<TensorType> in{x_type, w_type}, out{x_type, rstd_type};
  const Reals y = testing::run_reference(RmsNorm{}, in, out, {x, weight})[0];
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
  return sum;
}

double slope(Reals& values, std::size_t i, const std::function<double()>& f) {
  constexpr double step = 1e-4;
  const double at = values[i];
  values[i] = at + step;
  const double above = f();
  values[i] = at - step;
  const double below = f();
  values[i] = at;
  return (above - below) / (2 * step);
}

TEST(NormResults, AWeightOfZeroGivesZeroUnlessTheNormIsInvertible) {
  const Values v;
  const std::vector<TensorType> in{x_type, w_type}, out{x_type, rstd_type};
  const auto plain = norm_of(v, false), kept = norm_of(v, true);
  const Reals reference = testing::run_reference(RmsNorm{}, in, out, {v.x, v.weight})[0];
  for (std::int64_t r = 0; r < rows; ++r)
    for (const std::size_t c : {zero, negative_zero}) {
      const auto i = static_cast<std::size_t>(r) * columns + c;
      EXPECT_EQ(plain[0][i], 0) << "column " << c;
      EXPECT_EQ(reference[i], 0) << "column " << c;
      EXPECT_NE(kept[0][i], 0) << "column " << c;
      EXPECT_LT(std::abs(kept[0][i]), 0x1p-95) << "column " << c;
    }
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto i = static_cast<std::size_t>(r) * columns + small;
    const double xhat = v.x[i] * plain[1][static_cast<std::size_t>(r)];
    EXPECT_NEAR(plain[0][i] / (xhat * 0x1p-120), 1, 1e-5);
    EXPECT_NEAR(kept[0][i] / (xhat * 0x1p-100), 1, 1e-5);
  }
}

// dx too: a column of weight zero takes part in the mean square of its row.
TEST(NormResults, GradientsAreTheSlopesEvenWhereAWeightIsZero) {
  Values v;
  const auto norm = norm_of(v, true);
  CpuDevice device(1);
  const std::vector<TensorType> in{x_type, x_type, w_type, rstd_type}, out{x_type, w_type};
  const auto bytes = testing::run_kernel(device, RmsNormGrad{.from_result = true}, in, out,
                                         {v.dy, norm[0], v.weight, norm[1]});
  const Reals dx = testing::decode(bytes[0], DType::f32);
  const Reals dweight = testing::decode(bytes[1], DType::f32);
  const auto sum = [&] { return weighed(v.x, v.weight, v.dy); };
  double largest_lost = 0;
  for (std::size_t i = 0; i < v.x.size(); ++i) {
    const double wanted = slope(v.x, i, sum);
    EXPECT_NEAR(dx[i], wanted, 1e-5) << "dx " << i;
    if (i % columns == zero) largest_lost = std::max(largest_lost, std::abs(wanted));
  }
  EXPECT_GT(largest_lost, 1e-2) << "nothing to lose in dx where the weight is zero";
  for (std::size_t c = 0; c < v.weight.size(); ++c)
    EXPECT_NEAR(dweight[c], slope(v.weight, c, sum), 1e-5) << "dweight " << c;
}

}  // namespace
}  // namespace ridge
