#include "ridge/gpu/sm90/products.h"

#include <iterator>
#include <memory>

#include "ridge/gpu/products90.h"

namespace ridge::gpu {
namespace {

bool is_hopper(const Context& gpu) { return gpu.compute_capability == 90; }

class OwnProduct final : public Product {
 public:
  OwnProduct(const Context& gpu, const ProductShape& shape) : gpu_(gpu), shape_(shape) {}
  std::size_t workspace() const override { return 0; }
  void run(Stream stream, const void* a, const void* b, void* c, void*, OperandScales,
           ProductTerms) const override {
    sm90::product(shape_, a, b, c, gpu_.multiprocessors, stream);
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

void linear_product90(const Context& gpu, const LinearProduct& shape, int way, const void* x,
                      const void* weight, const void* bias, const void* residual, void* y) {
  sm90::linear_product(shape, way, x, weight, bias, residual, y, gpu.multiprocessors, gpu.stream);
}

}  // namespace ridge::gpu
