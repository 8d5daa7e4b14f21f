// Products of a warp by each unit, compiled as the kernels of ridge/gpu/ are: plain arithmetic in
// every dtype, and the matrix unit of the dialect.

#include "ridge/gpu/device/matrix_unit.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/simt/buffer.h"

namespace ridge {
namespace {

using namespace gpu;
using simt::Buffer;

// Of a warp's product, in memory and in shared memory.
constexpr int rows = 32, columns = warp_width, depth = 16, stride = 24;

// c[rows, columns] = a[rows, depth] b[columns, depth]^T.
template <class Unit>
__global__ void multiply(const typename Unit::Stored* a, const typename Unit::Stored* b, float* c) {
  begin_kernel();
  __shared__ __align__(16) typename Unit::Stored left[rows][stride];
  __shared__ __align__(16) typename Unit::Stored right[columns][stride];
  for (int i = static_cast<int>(threadIdx.x); i < rows * depth; i += warp_width)
    left[i / depth][i % depth] = a[i];
  for (int i = static_cast<int>(threadIdx.x); i < columns * depth; i += warp_width)
    right[i / depth][i % depth] = b[i];
  __syncthreads();
  WarpProduct<Unit, rows, columns> product;
  product.template add<depth>(left[0], right[0], stride);
  product.each([&](int row, int column, float sum) { c[row * columns + column] = sum; });
}

template <class Unit>
class MatrixUnits : public ::testing::Test {};
using Units =
    ::testing::Types<PlainUnit<float>, PlainUnit<BFloat16>, PlainUnit<Float16>, MatrixUnit<float>,
                     MatrixUnit<Tf32>, MatrixUnit<BFloat16>, MatrixUnit<Float16>>;
TYPED_TEST_SUITE(MatrixUnits, Units);

template <class T>
std::vector<T> whole_numbers(int count, int factor) {
  std::vector<T> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(T(static_cast<float>(i * factor % 17 - 8)));
  return numbers;
}

template <class Unit>
void expect_exact() {
  using Stored = typename Unit::Stored;
  const std::vector<Stored> left = whole_numbers<Stored>(rows * depth, 7);
  const std::vector<Stored> right = whole_numbers<Stored>(columns * depth, 5);
  const Buffer<Stored> a(left), b(right);
  const Buffer<float> c(rows * columns, -1);
  launch_on(nullptr, false, multiply<Unit>, dim3(1), dim3(warp_width), 0,
            static_cast<const Stored*>(a.data()), static_cast<const Stored*>(b.data()), c.data());
  const std::vector<float> found = c.values();
  const auto element = [](const std::vector<Stored>& x, int i) {
    return static_cast<float>(x[static_cast<std::size_t>(i)]);
  };
  for (int i = 0; i < rows * columns; ++i) {
    float sum = 0;
    for (int k = 0; k < depth; ++k)
      sum += element(left, i / columns * depth + k) * element(right, i % columns * depth + k);
    ASSERT_EQ(found[static_cast<std::size_t>(i)], sum)
        << "row " << i / columns << ", column " << i % columns;
  }
}

TYPED_TEST(MatrixUnits, MultiplyWholeNumbersExactly) { expect_exact<TypeParam>(); }

#if RIDGE_SIMT_WARP == 32
// RDNA's, whose warps are as wide as NVIDIA's.
TEST(MatrixUnit, MultipliesByWmma) {
  expect_exact<WmmaUnit<BFloat16>>();
  expect_exact<WmmaUnit<Float16>>();
}
#endif

// Lanes that have returned bring nothing.
__global__ void multiply_with_half_of_a_warp(float* c) {
  begin_kernel();
  __shared__ __align__(16) BFloat16 ones[16][24];
  if (threadIdx.x < 16)
    for (int k = 0; k < 16; ++k) store(&ones[threadIdx.x][k], 1.0f);
  __syncthreads();
  if (threadIdx.x >= warp_width / 2) return;
  WarpProduct<MatrixUnit<BFloat16>, 16, 16> product;
  product.add<16>(ones[0], ones[0], 24);
  product.each([&](int row, int column, float sum) { c[row * 16 + column] = sum; });
}

TEST(MatrixUnit, WantsAllLanesOfAWarp) {
  const Buffer<float> c(256, 0);
  std::string fault;
  try {
    launch_on(nullptr, false, multiply_with_half_of_a_warp, dim3(1), dim3(warp_width), 0, c.data());
  } catch (const simt::Fault& found) {
    fault = found.what();
  }
  EXPECT_THAT(fault, ::testing::HasSubstr("lanes take part in work of the whole warp"));
}

}  // namespace
}  // namespace ridge
