#include "ridge/gpu/kernels/product/portable_products.h"

#include "ridge/gpu/kernels/activation.h"
#include "ridge/gpu/kernels/tiled_product.h"

namespace ridge::gpu {
namespace {

// Elements of 8 bits of a format that is known when the kernel runs. Both become f16 exactly.
struct AnyFloat8 {
  std::uint8_t bits;
};

__device__ Float16 f16_of(AnyFloat8 x, bool is_e5m2) {
  Float16 y;
  if (is_e5m2) {
    y.bits = static_cast<std::uint16_t>(x.bits << 8);  // the upper half of an f16
  } else {
    Float8E4M3 narrow;
    narrow.bits = x.bits;
    store(&y, static_cast<float>(narrow));
  }
  return y;
}

// A matrix [rows, depth] in memory, or stored transposed, as [depth, rows].
template <class Element>
struct DenseOperand {
  using T = Element;
  const T* data;
  std::int64_t rows, depth;
  bool along_depth, packed;
  bool is_e5m2;  // of AnyFloat8; else e4m3

  // Matrix i of several, one behind the other.
  __device__ DenseOperand at(std::int64_t i) const {
    DenseOperand one = *this;
    one.data += i * rows * depth;
    return one;
  }
  __device__ const T* element(std::int64_t row, std::int64_t k) const {
    return data + (along_depth ? row * depth + k : k * rows + row);
  }
  template <class Unit>
  __device__ typename Unit::Stored load(T x) const {
    if constexpr (sizeof(T) == 1)
      return f16_of(x, is_e5m2);
    else
      return stored<Unit>(x);
  }
};

// What is done to a sum before it is written.
template <class Out>
struct ProductFinish {
  std::int64_t m, n;
  Out* c;
  const Out *bias, *residual;  // null where there is none
  OperandScales scales;        // null likewise
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

ProductExtents extents_of(const ProductShape& s) { return {s.batch, s.m, s.n, s.k}; }

class PortableProduct final : public Product {
 public:
  PortableProduct(const Card& card, const ProductShape& shape, TilePlan plan)
      : early_(card.launches_early()), s_(shape), plan_(plan) {}

  std::size_t workspace() const override { return plan_.workspace(extents_of(s_)); }

  void run(Stream stream, const void* a, const void* b, void* c, void* workspace,
           OperandScales scales, ProductTerms terms) const override {
    with_elements(s_, [&]<class Unit, class T, class Out>() {
      const ProductFinish<Out> finish{.m = s_.m,
                                      .n = s_.n,
                                      .c = static_cast<Out*>(c),
                                      .bias = static_cast<const Out*>(terms.bias),
                                      .residual = static_cast<const Out*>(terms.residual),
                                      .scales = s_.scaled ? scales : OperandScales{},
                                      .accumulate = s_.accumulate,
                                      .relu = s_.relu};
      const auto left = operand<Unit>(static_cast<const T*>(a), s_.m, !s_.trans_a, s_.in);
      const auto right =
          operand<Unit>(static_cast<const T*>(b), s_.n, s_.trans_b, s_.in_b.value_or(s_.in));
      with_tile(plan_.rows, [&]<class Tile>() {
        launch_product<Tile, Unit>(stream, early_, extents_of(s_), plan_.parts, left, right, finish,
                                   workspace);
      });
    });
  }

 private:
  template <class Unit, class T>
  DenseOperand<T> operand(const T* data, std::int64_t rows, bool along_depth, DType dtype) const {
    const std::int64_t length = along_depth ? s_.k : rows;
    return {.data = data,
            .rows = rows,
            .depth = s_.k,
            .along_depth = along_depth,
            .packed = s_.alignment >= 16 && length % pack_of<Unit> == 0,
            .is_e5m2 = dtype == DType::f8e5m2};
  }

  bool early_;
  ProductShape s_;
  TilePlan plan_;
};

}  // namespace

std::vector<ProductPtr> portable_products(const Card& card, const ProductShape& shape,
                                          std::size_t most) {
  std::vector<ProductPtr> products;
  if (!takes(shape)) return products;
  for (const TilePlan& plan : tile_plans(card, extents_of(shape), LargeTile::rows))
    if (products.size() < most)
      products.push_back(std::make_unique<PortableProduct>(card, shape, plan));
  return products;
}

}  // namespace ridge::gpu
