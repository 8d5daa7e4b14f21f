#include "ridge/gpu/sm90/product/products.h"

#include <iterator>
#include <memory>

#include "ridge/gpu/kernels/product/products_sm90.h"

namespace ridge::gpu {
namespace {

bool is_hopper(const Context& gpu) { return gpu.compute_capability == 90; }

class OwnProduct final : public Product {
 public:
  OwnProduct(const Context& gpu, const ProductShape& shape) : gpu_(gpu), shape_(shape) {}
  std::size_t workspace() const override { return 0; }
  void run(Stream stream, const void* a, const void* b, void* c, void*, OperandScales scales,
           ProductTerms) const override {
    sm90::product(shape_, a, b, c, scales, gpu_.multiprocessors, stream);
  }

 private:
  const Context& gpu_;
  const ProductShape shape_;
};

}  // namespace

ProductPtr product90(const Context& gpu, const ProductShape& shape) {
  constexpr std::int64_t vector = 8;
  const bool fits = is_hopper(gpu) && is_16_bit(shape.in) && shape.batch == 1 &&
                    !shape.accumulate && !shape.bias && !shape.residual && !shape.relu &&
                    shape.alignment == 16 && (shape.trans_a ? shape.m : shape.k) % vector == 0 &&
                    (shape.trans_b ? shape.k : shape.n) % vector == 0 && shape.n % vector == 0;
  return fits ? std::make_unique<OwnProduct>(gpu, shape) : nullptr;
}

bool gate_products90_support(const Context& gpu, const GateProduct& shape) {
  return is_hopper(gpu) && is_16_bit(shape.dtype) && shape.intermediate % 64 == 0 &&
         shape.k % 8 == 0;
}

void swiglu_product90(const Context& gpu, const GateProduct& shape, const void* x,
                      const void* weight, void* packed, void* y) {
  sm90::swiglu_product(shape, x, weight, packed, y, gpu.multiprocessors, gpu.stream);
}

void swiglu_grad_product90(const Context& gpu, const GateProduct& shape, int way, const void* g,
                           const void* weight, const void* packed, void* dpacked, void* y) {
  constexpr sm90::GradWay ways[] = {sm90::GradWay::more_ahead, sm90::GradWay::more_stages};
  static_assert(std::size(ways) == swiglu_grad_product90_ways);
  sm90::swiglu_grad_product(ways[way], shape, g, weight, packed, dpacked, y, gpu.multiprocessors,
                            gpu.stream);
}

bool linear_product90_supports(const Context& gpu, const LinearProduct& shape) {
  return is_hopper(gpu) && is_16_bit(shape.dtype) && shape.n % 8 == 0 && shape.k % 8 == 0;
}

int linear_product90_expected_best(const Context& gpu, const LinearProduct& shape) {
  // The tiles of the ways, of 128 rows: columns, and how many of a pair lie side by side. See
  // linear_products.cu.
  struct Way {
    std::int64_t columns, across;
  };
  constexpr Way ways[linear_product90_ways] = {{128, 2}, {128, 1}, {64, 1}, {192, 2}};
  constexpr std::int64_t rows = 128, pair = 2;
  const auto parts = [](std::int64_t extent, std::int64_t part) {
    return (extent + part - 1) / part;
  };
  // Columns that a multiprocessor goes through; narrow tiles wait more for shared memory.
  const auto cost = [&](int i) {
    const Way& way = ways[i];
    const std::int64_t pairs =
        parts(shape.m, rows * pair / way.across) * parts(shape.n, way.columns * way.across);
    const std::int64_t columns = parts(pairs, gpu.multiprocessors / pair) * way.columns;
    return way.columns < 128 ? columns * 5 / 4 : columns;
  };
  int best = 0;
  for (int i = 1; i < linear_product90_ways; ++i)
    if (50 * cost(i) < 49 * cost(best)) best = i;
  return best;
}

void linear_product90(const Context& gpu, const LinearProduct& shape, int way, const void* x,
                      const void* weight, const void* bias, const void* residual, void* y) {
  sm90::linear_product(shape, way, x, weight, bias, residual, y, gpu.multiprocessors, gpu.stream);
}

}  // namespace ridge::gpu
