// Portable products in every shape, dtype and layout, by all plans that there are for each.
// Operands are whole numbers, so that sums are exact in any order.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/gpu/vendor/blas.h"
#include "tests/simt/buffer.h"

namespace ridge {
namespace {

using gpu::ProductShape;
using simt::Buffer;

// Few multiprocessors, so that sums of few tiles are cut into parts, and many, so that there are
// plans with small tiles first.
constexpr gpu::Card card{.compute_capability = 0, .multiprocessors = 4};

constexpr std::size_t all_plans = 100;

using Numbers = std::vector<float>;

// From -4 to 3, which all dtypes have, those of 8 bits too.
Numbers whole_numbers(std::int64_t count, std::uint32_t seed) {
  Numbers numbers;
  std::uint32_t state = seed;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    numbers.push_back(static_cast<float>(state >> 16 & 7) - 4);
  }
  return numbers;
}

// Numbers as elements in the device's memory, from `offset` elements behind its beginning on.
class Tensor {
 public:
  Tensor(const Numbers& numbers, DType dtype, std::size_t offset)
      : dtype_(dtype), offset_(offset * size_of(dtype)), bytes_(bytes_of(numbers)) {}
  void* data() const { return bytes_.data() + offset_; }
  Numbers values() const {
    const std::vector<std::byte> bytes = bytes_.values();
    Numbers numbers((bytes.size() - offset_) / size_of(dtype_));
    load_floats(bytes.data() + offset_, dtype_, numbers);
    return numbers;
  }

 private:
  std::vector<std::byte> bytes_of(const Numbers& numbers) const {
    std::vector<std::byte> bytes(offset_ + numbers.size() * size_of(dtype_));
    store_floats(numbers, dtype_, bytes.data() + offset_);
    return bytes;
  }

  DType dtype_;
  std::size_t offset_;
  Buffer<std::byte> bytes_;
};

struct Operands {
  Numbers a, b, c, bias, residual;
  float scale_a = 1, scale_b = 1;

  explicit Operands(const ProductShape& s)
      : a(whole_numbers(s.batch * s.m * s.k, 1)),
        b(whole_numbers(s.batch * s.k * s.n, 2)),
        c(whole_numbers(s.batch * s.m * s.n, 3)),
        bias(whole_numbers(s.n, 4)),
        residual(whole_numbers(s.m * s.n, 5)) {
    if (s.scaled) scale_a = 0.5f, scale_b = 4;
  }
};

// What c is to be, before it is rounded.
std::vector<double> product(const ProductShape& s, const Operands& o) {
  std::vector<double> result;
  const auto at = [](const Numbers& numbers, std::int64_t i) {
    return static_cast<double>(numbers[static_cast<std::size_t>(i)]);
  };
  for (std::int64_t i = 0; i < s.batch; ++i)
    for (std::int64_t row = 0; row < s.m; ++row)
      for (std::int64_t column = 0; column < s.n; ++column) {
        double sum = 0;
        for (std::int64_t k = 0; k < s.k; ++k)
          sum += at(o.a, i * s.m * s.k + (s.trans_a ? k * s.m + row : row * s.k + k)) *
                 at(o.b, i * s.k * s.n + (s.trans_b ? column * s.k + k : k * s.n + column));
        sum *= o.scale_a * o.scale_b;
        if (s.accumulate) sum += at(o.c, (i * s.m + row) * s.n + column);
        if (s.bias) sum += at(o.bias, column);
        if (s.residual) sum += at(o.residual, row * s.n + column);
        result.push_back(s.relu && sum < 0 ? 0 : sum);
      }
  return result;
}

// c by one of the plans.
Numbers run(const gpu::Product& plan, const ProductShape& s, const Operands& o) {
  const std::size_t offset = s.alignment == 16 ? 0 : 1;
  const Tensor a(o.a, s.in, offset), b(o.b, s.in_b.value_or(s.in), offset), c(o.c, s.out, offset);
  const Tensor bias(o.bias, s.out, 0), residual(o.residual, s.out, 0);
  const Buffer<float> scale_a(1, o.scale_a), scale_b(1, o.scale_b);
  std::byte* const workspace = simt::allocate(plan.workspace());
  plan.run(nullptr, a.data(), b.data(), c.data(), workspace,
           s.scaled ? gpu::OperandScales{scale_a.data(), scale_b.data()} : gpu::OperandScales{},
           {s.bias ? bias.data() : nullptr, s.residual ? residual.data() : nullptr});
  simt::deallocate(workspace);
  return c.values();
}

Numbers rounded(const std::vector<double>& exact, DType dtype) {
  Numbers numbers(exact.begin(), exact.end());
  std::vector<std::byte> elements(numbers.size() * size_of(dtype));
  store_floats(numbers, dtype, elements.data());
  load_floats(elements.data(), dtype, numbers);
  return numbers;
}

void expect_exact(const ProductShape& shape) {
  SCOPED_TRACE(to_string(shape));
  const Operands operands(shape);
  const Numbers expected = rounded(product(shape, operands), shape.out);
  const std::vector<gpu::ProductPtr> plans =
      gpu::make_portable_blas(card)->products(shape, all_plans);
  ASSERT_GE(plans.size(), 3u);
  for (std::size_t plan = 0; plan < plans.size(); ++plan) {
    const Numbers found = run(*plans[plan], shape, operands);
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(found[i], expected[i]) << "element " << i << " by plan " << plan;
  }
}

struct Dtypes {
  DType in, out;
  std::optional<DType> in_b{};
  bool tf32 = false;
};
constexpr Dtypes all_dtypes[] = {{DType::f32, DType::f32},
                                 {DType::f32, DType::f32, {}, true},
                                 {DType::bf16, DType::bf16},
                                 {DType::bf16, DType::f32},
                                 {DType::f16, DType::f16},
                                 {DType::f16, DType::f32},
                                 {DType::f8e4m3, DType::bf16, DType::f8e4m3},
                                 {DType::f8e4m3, DType::f32, DType::f8e5m2},
                                 {DType::f8e5m2, DType::bf16, DType::f8e4m3}};

ProductShape shape_of(const Dtypes& dtypes, std::array<std::int64_t, 3> extents) {
  return {.m = extents[0],
          .n = extents[1],
          .k = extents[2],
          .in = dtypes.in,
          .out = dtypes.out,
          .in_b = dtypes.in_b,
          .scaled = is_float8(dtypes.in),
          .tf32 = dtypes.tf32};
}

// One element, primes, tiles and what is a little more or less; no terms at all.
TEST(PortableProducts, AreExactInEveryDtypeAndLayout) {
  for (const Dtypes& dtypes : all_dtypes)
    for (const std::array<std::int64_t, 3> extents :
         {std::array<std::int64_t, 3>{1, 1, 1}, {5, 7, 3}, {37, 23, 41}, {32, 64, 48}, {3, 2, 0}})
      for (const bool trans_a : {false, true})
        for (const bool trans_b : {false, true}) {
          ProductShape shape = shape_of(dtypes, extents);
          shape.trans_a = trans_a;
          shape.trans_b = trans_b;
          expect_exact(shape);
          shape.alignment = static_cast<std::uint32_t>(size_of(shape.in));
          if (extents[0] == 32) expect_exact(shape);
        }
}

// More than one of the largest tiles in each direction, and rows that packs do not end with.
TEST(PortableProducts, AreExactBeyondATile) {
  for (const Dtypes& dtypes : all_dtypes)
    for (const std::array<std::int64_t, 3> extents :
         {std::array<std::int64_t, 3>{136, 144, 40}, {131, 139, 35}})
      expect_exact(shape_of(dtypes, extents));
}

TEST(PortableProducts, AddThePartsOfLongSums) {
  for (const Dtypes& dtypes : all_dtypes)
    for (const std::int64_t k : {256, 515}) {
      ProductShape shape = shape_of(dtypes, {9, 24, k});
      const auto plans = gpu::make_portable_blas(card)->products(shape, all_plans);
      EXPECT_GT(plans.front()->workspace(), 0u) << "is not cut";
      shape.accumulate = shape.out == DType::f32;
      shape.batch = 2;
      expect_exact(shape);
    }
}

TEST(PortableProducts, FinishTheirSums) {
  for (const Dtypes& dtypes : {all_dtypes[0], all_dtypes[2], all_dtypes[5]})
    for (int which = 0; which < 32; ++which) {
      ProductShape shape = shape_of(dtypes, {21, 40, 16});
      shape.trans_b = true;
      shape.accumulate = which & 1;
      shape.bias = which & 2;
      shape.residual = which & 4;
      shape.relu = which & 8;
      shape.batch = which & 16 ? 3 : 1;
      shape.scaled = dtypes.in == DType::f16;
      expect_exact(shape);
    }
}

// Only what multiplies an infinity is infinite or no number: none of the zeros beside a matrix
// does.
TEST(PortableProducts, KeepWhatIsNotFiniteToItsRow) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const ProductShape shape{.m = 5, .n = 6, .k = 7, .in = dtype, .out = dtype, .relu = true};
    Operands operands(shape);
    operands.a[2 * 7 + 3] = std::numeric_limits<float>::infinity();
    operands.a[4 * 7 + 1] = std::nanf("");
    const std::vector<double> exact = product(shape, operands);
    for (const gpu::ProductPtr& plan : gpu::make_portable_blas(card)->products(shape, all_plans)) {
      const Numbers found = run(*plan, shape, operands);
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(std::isnan(exact[i]) ? std::isnan(found[i])
                                         : found[i] == static_cast<float>(exact[i]))
            << fmt::format("{}: {} is {}, not {}", name_of(dtype), i, found[i], exact[i]);
    }
  }
}

// f32 numbers are rounded to 19 bits where the matrix units of a card take such alone.
TEST(PortableProducts, RoundToTf32WhereThatIsAllowedAlone) {
  ProductShape shape{.m = 1, .n = 1, .k = 1, .in = DType::f32, .out = DType::f32};
  Operands operands(shape);
  operands.a = {1 + 0x1p-12f};
  operands.b = {1};
  for (const bool tf32 : {false, true}) {
    shape.tf32 = tf32;
    const auto plan = std::move(gpu::make_portable_blas(card)->products(shape, 1)[0]);
    EXPECT_EQ(run(*plan, shape, operands)[0], tf32 && simt::warp_width == 32 ? 1.0f : 1 + 0x1p-12f);
  }
}

TEST(PortableProducts, GiveNoMorePlansThanAskedFor) {
  const ProductShape shape{.m = 64, .n = 64, .k = 4096, .in = DType::f32, .out = DType::f32};
  EXPECT_EQ(gpu::make_portable_blas(card)->products(shape, 1).size(), 1u);
  EXPECT_EQ(gpu::make_portable_blas(card)->products(shape, 4).size(), 4u);
}

// A library that is there or not.
class SomeLibrary final : public gpu::Blas {
 public:
  explicit SomeLibrary(bool is_there) : is_there_(is_there) {}
  std::vector<gpu::ProductPtr> products(const ProductShape&, std::size_t) override {
    version();
    return {};
  }
  std::string version() override {
    if (!is_there_) throw DeviceError("it was not found");
    return "the library";
  }

 private:
  bool is_there_;
};

TEST(PortableProducts, StandInForALibraryThatIsNotThere) {
  const ProductShape shape{.m = 2, .n = 2, .k = 2, .in = DType::f32, .out = DType::f32};
  const auto with = gpu::library_or_portable(std::make_shared<SomeLibrary>(true), card);
  EXPECT_TRUE(with->products(shape, 1).empty());
  EXPECT_EQ(with->version(), "the library");
  EXPECT_EQ(with->warning(), "");
  const auto without = gpu::library_or_portable(std::make_shared<SomeLibrary>(false), card);
  EXPECT_EQ(without->warning(), "");
  EXPECT_EQ(without->products(shape, 1).size(), 1u);
  EXPECT_EQ(without->version(), gpu::make_portable_blas(card)->version());
  EXPECT_EQ(without->warning(), "Products run slower, by portable kernels: it was not found");
}

TEST(PortableProducts, RefuseDtypesThatTheyDoNotMultiply) {
  const auto refuses = [](const ProductShape& shape) {
    try {
      gpu::make_portable_blas(card)->products(shape, 1);
      return false;
    } catch (const DeviceError&) {
      return true;
    }
  };
  EXPECT_TRUE(refuses({.m = 1, .n = 1, .k = 1, .in = DType::s8, .out = DType::s8}));
  EXPECT_TRUE(refuses({.m = 1, .n = 1, .k = 1, .in = DType::f32, .out = DType::bf16}));
  EXPECT_TRUE(
      refuses({.m = 1, .n = 1, .k = 1, .in = DType::bf16, .out = DType::bf16, .in_b = DType::f16}));
}

}  // namespace
}  // namespace ridge
