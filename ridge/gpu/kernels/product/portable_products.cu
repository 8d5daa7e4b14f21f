#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/gpu/kernels/activation.h"
#include "ridge/gpu/kernels/product/product_tile.h"
#include "ridge/gpu/vendor/blas.h"

namespace ridge::gpu {
namespace {

// A multiprocessor runs two thread blocks of 128 x 128, or more smaller ones. Warps are twice as
// wide where they have twice the lanes, so that each lane holds the same number of sums.
constexpr int wide = warp_width / 32;
using LargeTile = ProductTile<128, 128, 64, 32 * wide>;
using MediumTile = ProductTile<64, 64, 32, 32 * wide>;
using SmallTile = ProductTile<32, 32, 16, 16 * wide>;

// What is done to a sum before it is written: element (row, column) of matrix i of c.
template <class Out>
struct ProductFinish {
  Out* c;
  const Out *bias, *residual;  // null where there is none
  OperandScales scales;        // null likewise
  std::int64_t m, n;
  bool accumulate, relu;

  __device__ void operator()(float sum, std::int64_t i, std::int64_t row,
                             std::int64_t column) const {
    Out* const to = c + (i * m + row) * n + column;
    if (scales.a) sum *= *scales.a * *scales.b;
    if (accumulate) sum += load(to);
    if (bias) sum += load(bias + column);
    if (residual) sum += load(residual + row * n + column);
    store(to, relu ? ReluOf()(sum) : sum);
  }
};

// How the work is cut: `parts` thread blocks have a tile of a matrix, each so many terms of its
// sums.
struct ProductCut {
  std::int64_t tiles_down, tiles_across;  // of one matrix
  int parts;
  std::int64_t terms_of_part;
};

// c = a b^T, or sums[parts][batch][m][n] of the parts alone, where `sums` is not null.
template <class Tile, class Unit, class T, class Out>
__global__ void __launch_bounds__(Tile::threads, 2)
    product_kernel(ProductOperand<T> a, ProductOperand<T> b, ProductCut cut, float* sums,
                   std::int64_t batch, ProductFinish<Out> finish) {
  begin_kernel();
  std::int64_t block = blockIdx.x;
  const std::int64_t down = block % cut.tiles_down;
  block /= cut.tiles_down;
  const std::int64_t across = block % cut.tiles_across;
  block /= cut.tiles_across;
  const std::int64_t part = block % cut.parts, i = block / cut.parts;
  const std::int64_t begin = part * cut.terms_of_part;
  const std::int64_t end = min(begin + cut.terms_of_part, a.depth);
  multiply_tile<Tile, Unit>(a.at(i), b.at(i), down * Tile::rows, across * Tile::columns, begin, end,
                            [&](std::int64_t row, std::int64_t column, float sum) {
                              if (row >= finish.m || column >= finish.n) return;
                              if (sums)
                                sums[((part * batch + i) * finish.m + row) * finish.n + column] =
                                    sum;
                              else
                                finish(sum, i, row, column);
                            });
}

constexpr int finish_threads = 256;

// Adds the parts of each sum in their order.
template <class Out>
__global__ void __launch_bounds__(finish_threads)
    finish_parts_kernel(const float* sums, int parts, std::int64_t count,
                        ProductFinish<Out> finish) {
  begin_kernel();
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * finish_threads + threadIdx.x;
  if (at >= count) return;
  float sum = 0;
  for (int part = 0; part < parts; ++part) sum += sums[part * count + at];
  finish(sum, at / (finish.m * finish.n), at / finish.n % finish.m, at % finish.n);
}

// One of the sizes of a tile, and into how many parts its sums are cut.
struct PortablePlan {
  int rows;
  int parts;
};

// Calls f.template operator()<Tile>() for the tile of so many rows.
template <class F>
void with_tile(int rows, const F& f) {
  if (rows == LargeTile::rows) return f.template operator()<LargeTile>();
  if (rows == MediumTile::rows) return f.template operator()<MediumTile>();
  return f.template operator()<SmallTile>();
}

// Calls f.template operator()<Unit, T, Out>() for what a product multiplies, reads and writes.
template <class F>
void with_elements(const ProductShape& s, const F& f) {
  if (is_float8(s.in)) {
    if (s.out == DType::f32) return f.template operator()<MatrixUnit<Float16>, AnyFloat8, float>();
    return f.template operator()<MatrixUnit<Float16>, AnyFloat8, BFloat16>();
  }
  if (s.in == DType::f32 && s.tf32) return f.template operator()<MatrixUnit<Tf32>, float, float>();
  if (s.in == DType::f32) return f.template operator()<MatrixUnit<float>, float, float>();
  dispatch_16_bit(s.in, [&]<class T>() {
    if (s.out == DType::f32) return f.template operator()<MatrixUnit<T>, T, float>();
    return f.template operator()<MatrixUnit<T>, T, T>();
  });
}

// Whether there is a kernel for the dtypes.
bool takes(const ProductShape& s) {
  const DType b = s.in_b.value_or(s.in);
  if (is_float8(s.in)) return is_float8(b) && (s.out == DType::f32 || s.out == DType::bf16);
  return is_floating(s.in) && b == s.in && (s.out == s.in || s.out == DType::f32);
}

class PortableProduct final : public Product {
 public:
  PortableProduct(const Card& card, const ProductShape& shape, PortablePlan plan)
      : early_(card.launches_early()), s_(shape), plan_(plan) {}

  std::size_t workspace() const override {
    if (plan_.parts == 1) return 0;
    return static_cast<std::size_t>(plan_.parts * s_.batch * s_.m * s_.n) * sizeof(float);
  }

  void run(Stream stream, const void* a, const void* b, void* c, void* workspace,
           OperandScales scales, ProductTerms terms) const override {
    if (s_.batch == 0 || s_.m == 0 || s_.n == 0) return;
    float* const sums = plan_.parts > 1 ? static_cast<float*>(workspace) : nullptr;
    with_elements(s_, [&]<class Unit, class T, class Out>() {
      const ProductFinish<Out> finish{.c = static_cast<Out*>(c),
                                      .bias = static_cast<const Out*>(terms.bias),
                                      .residual = static_cast<const Out*>(terms.residual),
                                      .scales = s_.scaled ? scales : OperandScales{},
                                      .m = s_.m,
                                      .n = s_.n,
                                      .accumulate = s_.accumulate,
                                      .relu = s_.relu};
      const auto left = operand<Unit>(static_cast<const T*>(a), s_.m, !s_.trans_a, s_.in);
      const auto right =
          operand<Unit>(static_cast<const T*>(b), s_.n, s_.trans_b, s_.in_b.value_or(s_.in));
      with_tile(plan_.rows, [&]<class Tile>() {
        constexpr int depth = CarriedRows<Unit, T, Tile::rows, Tile::threads>::depth;
        const ProductCut cut = cut_into(Tile::rows, Tile::columns, depth);
        const std::int64_t blocks = cut.tiles_down * cut.tiles_across * cut.parts * s_.batch;
        launch_on(stream, early_, product_kernel<Tile, Unit, T, Out>,
                  dim3(static_cast<unsigned>(blocks)), dim3(Tile::threads), 0, left, right, cut,
                  sums, s_.batch, finish);
      });
      if (!sums) return;
      const std::int64_t count = s_.batch * s_.m * s_.n;
      launch_on(stream, early_, finish_parts_kernel<Out>, dim3(blocks_for(count, finish_threads)),
                dim3(finish_threads), 0, static_cast<const float*>(sums), plan_.parts, count,
                finish);
    });
  }

 private:
  template <class Unit, class T>
  ProductOperand<T> operand(const T* data, std::int64_t rows, bool along_depth, DType dtype) const {
    const std::int64_t length = along_depth ? s_.k : rows;
    return {.data = data,
            .rows = rows,
            .depth = s_.k,
            .along_depth = along_depth,
            .packed = s_.alignment >= 16 && length % pack_of<Unit> == 0,
            .is_e5m2 = dtype == DType::f8e5m2};
  }

  ProductCut cut_into(int rows, int columns, int depth) const {
    const std::int64_t steps = (s_.k + depth - 1) / depth;
    return {.tiles_down = blocks_for(s_.m, rows),
            .tiles_across = blocks_for(s_.n, columns),
            .parts = plan_.parts,
            .terms_of_part = (steps + plan_.parts - 1) / plan_.parts * depth};
  }

  bool early_;
  ProductShape s_;
  PortablePlan plan_;
};

// The time of a plan in a unit of its own: rounds of tiles over the card, times the work of a tile.
// Small tiles load more for each product, and parts are written and read again.
double expected_time(const Card& card, const ProductShape& s, const PortablePlan& plan) {
  const double load = plan.rows == 128 ? 1.0 : plan.rows == 64 ? 1.4 : 2.2;
  const double area = static_cast<double>(plan.rows * plan.rows) * load;
  const std::int64_t tiles =
      s.batch * blocks_for(s.m, plan.rows) * blocks_for(s.n, plan.rows) * plan.parts;
  const auto rounds = static_cast<double>(blocks_for(tiles, std::max(1, card.multiprocessors)));
  const double terms = static_cast<double>(s.k) / plan.parts;
  const double passed_on = plan.parts == 1
                               ? 0.0
                               : static_cast<double>(2 * plan.parts * s.batch * s.m * s.n) * 16 /
                                     std::max(1, card.multiprocessors);
  return rounds * area * (terms + 64) + passed_on;
}

std::vector<PortablePlan> plans_for(const Card& card, const ProductShape& s) {
  constexpr std::int64_t least_terms = 128;  // of a part
  constexpr std::int64_t most_sums = std::int64_t{8} << 20;
  std::vector<PortablePlan> plans;
  for (const int rows : {128, 64, 32})
    for (const int parts : {1, 2, 4, 8, 16})
      if (parts == 1 || (s.k >= parts * least_terms && parts * s.batch * s.m * s.n <= most_sums))
        plans.push_back({rows, parts});
  std::ranges::stable_sort(plans, {},
                           [&](const PortablePlan& plan) { return expected_time(card, s, plan); });
  return plans;
}

class PortableBlas final : public Blas {
 public:
  explicit PortableBlas(const Card& card) : card_(card) {}

  std::vector<ProductPtr> products(const ProductShape& shape, std::size_t most) override {
    if (!takes(shape)) throw DeviceError("no portable kernel multiplies {}", to_string(shape));
    std::vector<ProductPtr> products;
    for (const PortablePlan& plan : plans_for(card_, shape))
      if (products.size() < most)
        products.push_back(std::make_unique<PortableProduct>(card_, shape, plan));
    return products;
  }

  // Counts up where kernels become others, so that times of old ones are not taken for theirs.
  std::string version() override { return "portable products 1"; }

 private:
  Card card_;
};

}  // namespace

std::shared_ptr<Blas> make_portable_blas(const Card& card) {
  return std::make_shared<PortableBlas>(card);
}

}  // namespace ridge::gpu
