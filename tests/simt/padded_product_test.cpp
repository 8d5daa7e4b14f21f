// Products of copies with aligned rows: which parts are copied, and where they are written, beside
// a library that multiplies rows of any distance one number at a time.

#include "ridge/gpu/kernels/product/padded_product.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tests/simt/buffer.h"

namespace ridge {
namespace {

using gpu::ProductShape;
using simt::Buffer;

bool begin_aligned(std::int64_t row, DType dtype) {
  return row * static_cast<std::int64_t>(size_of(dtype)) % 16 == 0;
}

class PlainProduct final : public gpu::Product {
 public:
  explicit PlainProduct(const ProductShape& shape) : s_(shape) {}
  std::size_t workspace() const override { return 512; }
  void run(gpu::Stream, const void* a, const void* b, void* c, void* workspace, gpu::OperandScales,
           gpu::ProductTerms) const override {
    for (const void* memory : {a, b, static_cast<const void*>(c)})
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 16, 0u);
    static_cast<std::byte*>(workspace)[workspace_last] = std::byte{1};
    const auto *left = static_cast<const BFloat16*>(a), *right = static_cast<const BFloat16*>(b);
    for (std::int64_t i = 0; i < s_.m; ++i)
      for (std::int64_t j = 0; j < s_.n; ++j) {
        float sum = 0;
        for (std::int64_t k = 0; k < s_.k; ++k)
          sum += static_cast<float>(left[s_.trans_a ? k * s_.row_a() + i : i * s_.row_a() + k]) *
                 static_cast<float>(right[s_.trans_b ? j * s_.row_b() + k : k * s_.row_b() + j]);
        const std::int64_t at = i * s_.row_c() + j;
        if (s_.out == DType::f32)
          static_cast<float*>(c)[at] = sum + (s_.accumulate ? static_cast<float*>(c)[at] : 0);
        else
          static_cast<BFloat16*>(c)[at] = BFloat16(sum);
      }
    simt::note_written(c,
                       static_cast<std::size_t>((s_.m - 1) * s_.row_c() + s_.n) * size_of(s_.out));
  }

 private:
  static constexpr std::size_t workspace_last = 511;
  ProductShape s_;
};

class PlainBlas final : public gpu::Blas {
 public:
  std::vector<gpu::ProductPtr> products(const ProductShape& s, std::size_t) override {
    EXPECT_TRUE(begin_aligned(s.row_a(), s.in) && begin_aligned(s.row_b(), s.in) &&
                begin_aligned(s.row_c(), s.out))
        << to_string(s);
    largest_part = std::max(largest_part, s.m);
    ++plans;
    std::vector<gpu::ProductPtr> all;
    all.push_back(std::make_unique<PlainProduct>(s));
    return all;
  }
  std::string version() override { return "plain"; }

  std::int64_t largest_part = 0;
  int plans = 0;
};

// Whole numbers, so that sums are exact.
std::vector<BFloat16> numbers(std::int64_t count, std::int64_t seed) {
  std::vector<BFloat16> all;
  for (std::int64_t i = 0; i < count; ++i)
    all.emplace_back(static_cast<float>((i * 7919 + seed) % 5 - 2));
  return all;
}

void expect_right(const ProductShape& s, std::int64_t largest_part) {
  SCOPED_TRACE(to_string(s));
  const auto blas = std::make_shared<PlainBlas>();
  gpu::Context gpu;
  gpu.blas = blas;
  const gpu::ProductPtr product = padded_product(gpu, s);
  ASSERT_TRUE(product);
  EXPECT_EQ(blas->largest_part, largest_part);
  EXPECT_EQ(blas->plans, s.m % largest_part == 0 ? 1 : 2);
  const Buffer<BFloat16> a(numbers(s.m * s.k, 1)), b(numbers(s.n * s.k, 2));
  const Buffer<std::byte> workspace(product->workspace(), std::byte{0xFF});  // NaN
  const auto elements = static_cast<std::size_t>(s.m * s.n);
  const Buffer<float> wide(s.out == DType::f32 ? elements : 1, 3.0f);
  const Buffer<BFloat16> narrow(s.out == DType::f32 ? 1 : elements, BFloat16(3.0f));
  void* const c = s.out == DType::f32 ? static_cast<void*>(wide.data()) : narrow.data();
  product->run(nullptr, a.data(), b.data(), c, workspace.data());
  const std::vector<float> f32 = wide.values();
  const std::vector<BFloat16> bf16 = narrow.values();
  const Buffer<float> expected(elements, 3.0f);
  ProductShape exact = s;
  exact.out = DType::f32;
  PlainProduct(exact).run(nullptr, a.data(), b.data(), expected.data(), workspace.data(), {}, {});
  const std::vector<float> sums = expected.values();
  for (std::size_t i = 0; i < elements; ++i)
    ASSERT_EQ(s.out == DType::f32 ? f32[i] : static_cast<float>(bf16[i]),
              s.out == DType::f32 ? sums[i] : static_cast<float>(BFloat16(sums[i])))
        << "element " << i;
}

TEST(PaddedProduct, IsOfAlignedRowsInEveryLayout) {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1}, {20, 13, 24}, {21, 16, 7}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const auto& [out, accumulate] :
             {std::pair{DType::bf16, false}, {DType::f32, false}, {DType::f32, true}}) {
          const ProductShape s{.m = m,
                               .n = n,
                               .k = k,
                               .trans_a = ta,
                               .trans_b = tb,
                               .in = DType::bf16,
                               .out = out,
                               .accumulate = accumulate};
          if (begin_aligned(s.row_a(), s.in) && begin_aligned(s.row_b(), s.in) &&
              begin_aligned(s.row_c(), s.out))
            EXPECT_FALSE(padded_product(gpu::Context{}, s));
          else
            expect_right(s, m);
        }
}

// Of rows so long that a copy of all of them would not stay in the cache.
TEST(PaddedProduct, IsInPartsWhereRowsAreLong) {
  constexpr std::int64_t m = 301, few = 3, many = 60001;
  const ProductShape left{
      .m = m, .n = few, .k = many, .trans_b = true, .in = DType::bf16, .out = DType::f32};
  expect_right(left, 256);
  ProductShape across = left;
  across.trans_a = true;
  expect_right(across, 256);
  const ProductShape result{.m = m, .n = many, .k = few, .in = DType::bf16, .out = DType::bf16};
  expect_right(result, 256);
}

TEST(PaddedProduct, IsNoneOfBatchesOrScaledOrLargeOperands) {
  gpu::Context gpu;
  gpu.blas = std::make_shared<PlainBlas>();
  const ProductShape odd{.m = 9, .n = 9, .k = 9, .in = DType::bf16, .out = DType::bf16};
  ASSERT_TRUE(padded_product(gpu, odd));
  const auto changed = [&](const auto& change) {
    ProductShape s = odd;
    change(s);
    return padded_product(gpu, s) != nullptr;
  };
  EXPECT_FALSE(changed([](ProductShape& s) { s.batch = 2; }));
  EXPECT_FALSE(changed([](ProductShape& s) { s.scaled = true; }));
  EXPECT_FALSE(changed([](ProductShape& s) { s.alignment = 2; }));
  EXPECT_FALSE(changed([](ProductShape& s) { s.in = s.out = DType::f32; }));
  EXPECT_FALSE(changed([](ProductShape& s) { s.residual = true; }));
  EXPECT_FALSE(changed([](ProductShape& s) { s.n = 100'001, s.k = 1000; })) << "200 MB of b";
}

}  // namespace
}  // namespace ridge
