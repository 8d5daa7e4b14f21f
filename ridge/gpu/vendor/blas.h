#pragma once

// Products by the vendor's library, which one file implements for each vendor, or by portable
// kernels in its place.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridge/base/dtype.h"
#include "ridge/gpu/device/context.h"

namespace ridge::gpu {

// c[batch, m, n] = a b, or with `accumulate` c += a b, row-major and dense, with a stored as [m,
// k], or [k, m] if trans_a, and b as [k, n], or [n, k] if trans_b. Sums are f32.
struct ProductShape {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  DType in = DType::f32, out = DType::f32;
  bool accumulate = false;
  // What is added to each row, and to the product, before that is rounded; `relu` comes last. They
  // are of c's dtype.
  bool bias = false, residual = false, relu = false;
  // The dtype of b, where it is another than that of a. Operands of 8 bits lie as [m, k] and [n,
  // k], with extents that are multiples of 16.
  std::optional<DType> in_b{};
  // Whether operands stand for so many times themselves: always of 8 bits, or of 16 if c is f32 and
  // nothing but itself is added to it.
  bool scaled = false;
  bool fast_accumulation = false;  // of 8 bits: see ops/scaled_matmul.h
  bool tf32 = false;  // f32 operands rounded to 19 bits on their way into the tensor cores
  // What the addresses of all three are multiples of, in bytes: 16, or else that of an element.
  std::uint32_t alignment = 16;

  bool operator==(const ProductShape&) const = default;
};

std::string to_string(const ProductShape& shape);

// What the elements of scaled operands stand for is so many times themselves. On the device,
// aligned to 16 bytes.
struct OperandScales {
  const float *a = nullptr, *b = nullptr;
};

// bias[n] and residual[m, n], where the shape has them. On the device, aligned to 16 bytes.
struct ProductTerms {
  const void *bias = nullptr, *residual = nullptr;
};

// One plan to compute a product.
class Product {
 public:
  virtual ~Product() = default;
  virtual std::size_t workspace() const = 0;  // bytes
  // `scales` for scaled operands alone.
  virtual void run(Stream stream, const void* a, const void* b, void* c, void* workspace,
                   OperandScales scales = {}, ProductTerms terms = {}) const = 0;
};
using ProductPtr = std::unique_ptr<Product>;

// What makes products. One for each device, which outlives them. A library is opened at first use:
// either function throws DeviceError if it is not there.
class Blas {
 public:
  virtual ~Blas() = default;
  // Up to `most` plans, the one that is expected to be the fastest first; at least one, or
  // DeviceError.
  virtual std::vector<ProductPtr> products(const ProductShape& shape, std::size_t most) = 0;
  virtual std::string version() = 0;  // "cuBLASLt 13.1.0"
  // What users are told of the products so far: a sentence, or nothing.
  virtual std::string warning() { return {}; }
};

// The vendor's library.
std::shared_ptr<Blas> make_vendor_blas();

// Portable kernels of ours, in kernels/product, that take every shape: in the place of a library
// that is not there. Products of f32 are rounded as `tf32` says where the card's matrix units take
// such numbers, those of 8 bits are exact in f16; sums are f32, always in the same order.
std::shared_ptr<Blas> make_portable_blas(const Card& card);

// The vendor's library, or where it turns out not to be there when it is first asked, or is not
// wanted (device/libraries.h), the portable kernels; warning() then says why.
std::shared_ptr<Blas> make_blas(const Card& card);

// That with another library.
std::shared_ptr<Blas> library_or_portable(std::shared_ptr<Blas> library, const Card& card);

// factors[0] = scale_a scale_b and factors[1] = beta: what a library multiplies a product of scaled
// operands with, and what it adds the product to. A kernel of ours, in kernels/quantize.
void product_factors(Stream stream, OperandScales scales, float beta, float* factors);

}  // namespace ridge::gpu
