#include "ridge/gpu/sm90/product/products.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "ridge/gpu/kernels/product/products_sm90.h"

namespace ridge::gpu {
namespace {

class OwnProduct final : public Product {
 public:
  OwnProduct(const Context& gpu, const ProductShape& shape) : gpu_(gpu), shape_(shape) {}
  std::size_t workspace() const override { return 0; }
  void run(Stream stream, const void* a, const void* b, void* c, void*, OperandScales scales,
           ProductTerms) const override {
    sm90::product(shape_, a, b, c, scales, gpu_.card.multiprocessors, stream);
  }

 private:
  const Context& gpu_;
  const ProductShape shape_;
};

}  // namespace

ProductPtr product_sm90(const Context& gpu, const ProductShape& shape) {
  constexpr std::int64_t vector = 8;
  const bool fits = gpu.card.is_sm90() && is_16_bit(shape.in) && shape.batch == 1 &&
                    !shape.accumulate && !shape.bias && !shape.residual && !shape.relu &&
                    shape.alignment == 16 && (shape.trans_a ? shape.m : shape.k) % vector == 0 &&
                    (shape.trans_b ? shape.k : shape.n) % vector == 0 && shape.n % vector == 0;
  return fits ? std::make_unique<OwnProduct>(gpu, shape) : nullptr;
}

bool gate_products_sm90_support(const Context& gpu, const GateProduct& shape) {
  return gpu.card.is_sm90() && is_16_bit(shape.dtype) && shape.intermediate % 64 == 0 &&
         shape.k % 8 == 0;
}

void swiglu_product_sm90(const Context& gpu, const GateProduct& shape, const void* x,
                         const void* weight, void* packed, void* y) {
  sm90::swiglu_product(shape, x, weight, packed, y, gpu.card.multiprocessors, gpu.stream);
}

void swiglu_grad_product_sm90(const Context& gpu, const GateProduct& shape, GradBuffers buffers,
                              const void* g, const void* weight, const void* packed, void* dpacked,
                              void* y) {
  sm90::swiglu_grad_product(buffers, shape, g, weight, packed, dpacked, y, gpu.card.multiprocessors,
                            gpu.stream);
}

bool linear_product_sm90_supports(const Context& gpu, const LinearProduct& shape) {
  return gpu.card.is_sm90() && is_16_bit(shape.dtype) && shape.n % 8 == 0 && shape.k % 8 == 0;
}

std::string to_string(const LinearTiles& tiles) {
  return fmt::format("tiles of 128 x {} {}", tiles.columns,
                     tiles.side_by_side ? "side by side" : "one above the other");
}

LinearTiles linear_product_sm90_expected_best(const Card& card, const LinearProduct& shape) {
  constexpr std::int64_t rows = 128, pair = 2;
  const Crossovers& at = card.crossovers();
  const auto parts = [](std::int64_t extent, std::int64_t part) {
    return (extent + part - 1) / part;
  };
  // Columns that a multiprocessor goes through.
  const auto cost = [&](const LinearTiles& tiles) {
    const std::int64_t across = tiles.side_by_side ? pair : 1;
    const std::int64_t pairs =
        parts(shape.m, rows * pair / across) * parts(shape.n, tiles.columns * across);
    const std::int64_t columns =
        parts(pairs, std::max<std::int64_t>(1, card.multiprocessors / pair)) * tiles.columns;
    return tiles.columns < 128 ? columns * at.narrow_numerator / at.narrow_denominator : columns;
  };
  LinearTiles best = linear_tiles[0];
  for (const LinearTiles& tiles : linear_tiles)
    if (at.saving_denominator * cost(tiles) < at.saving_numerator * cost(best)) best = tiles;
  return best;
}

void linear_product_sm90(const Context& gpu, const LinearProduct& shape, const LinearTiles& tiles,
                         const void* x, const void* weight, const void* bias, const void* residual,
                         void* y) {
  sm90::linear_product(shape, tiles, x, weight, bias, residual, y, gpu.card.multiprocessors,
                       gpu.stream);
}

}  // namespace ridge::gpu
