// Plain loops of the host stand in for the vendor's library of products. So the kernels that
// work before and after its products run too.

#include "ridge/gpu/vendor/blas.h"

#include <algorithm>
#include <vector>

#include "tests/simt/machine.h"

namespace ridge::gpu {
namespace {

std::vector<float> floats_at(const void* data, DType dtype, std::int64_t count) {
  std::vector<float> floats(static_cast<std::size_t>(count));
  load_floats(data, dtype, floats);
  return floats;
}

class HostProduct final : public Product {
 public:
  explicit HostProduct(const ProductShape& shape) : s_(shape) {}

  std::size_t workspace() const override { return s_.scaled ? 2 * sizeof(float) : 0; }

  void run(Stream stream, const void* a, const void* b, void* c, void* workspace,
           OperandScales scales, ProductTerms terms) const override {
    float factor = 1;
    if (s_.scaled) {
      auto* const factors = static_cast<float*>(workspace);
      product_factors(stream, scales, s_.accumulate ? 1.0f : 0.0f, factors);
      factor = factors[0];
    }
    const std::vector<float> left = floats_at(a, s_.in, s_.batch * s_.m * s_.k);
    const std::vector<float> right = floats_at(b, s_.in_b.value_or(s_.in), s_.batch * s_.k * s_.n);
    const std::int64_t count = s_.batch * s_.m * s_.n;
    std::vector<float> result(static_cast<std::size_t>(count));
    const auto add = [&](const void* data, std::int64_t of) {
      const std::vector<float> more = floats_at(data, s_.out, of);
      for (std::size_t i = 0; i < result.size(); ++i) result[i] += more[i % more.size()];
    };
    if (s_.accumulate) add(c, count);
    if (s_.bias) add(terms.bias, s_.n);
    if (s_.residual) add(terms.residual, s_.m * s_.n);
    for (std::int64_t i = 0; i < count; ++i) {
      float& y = result[static_cast<std::size_t>(i)];
      y += factor * dot(left, right, i);
      if (s_.relu) y = std::max(y, 0.0f);
    }
    store_floats(result, s_.out, c);
    simt::note_written(c, static_cast<std::size_t>(count) * size_of(s_.out));
  }

 private:
  // Element i of the product.
  float dot(const std::vector<float>& a, const std::vector<float>& b, std::int64_t i) const {
    const std::int64_t column = i % s_.n, row = i / s_.n % s_.m, batch = i / (s_.n * s_.m);
    double sum = 0;
    for (std::int64_t k = 0; k < s_.k; ++k) {
      const std::int64_t of_a = s_.trans_a ? k * s_.m + row : row * s_.k + k;
      const std::int64_t of_b = s_.trans_b ? column * s_.k + k : k * s_.n + column;
      sum += static_cast<double>(a[static_cast<std::size_t>(batch * s_.m * s_.k + of_a)]) *
             b[static_cast<std::size_t>(batch * s_.k * s_.n + of_b)];
    }
    return static_cast<float>(sum);
  }

  ProductShape s_;
};

class HostBlas final : public Blas {
 public:
  std::vector<ProductPtr> products(const ProductShape& shape, std::size_t) override {
    std::vector<ProductPtr> plans;
    plans.push_back(std::make_unique<HostProduct>(shape));
    return plans;
  }
  std::string version() override { return "loops of the host"; }
};

}  // namespace

std::shared_ptr<Blas> make_blas() { return std::make_shared<HostBlas>(); }
std::string to_string(const ProductShape&) { return "product"; }

}  // namespace ridge::gpu
