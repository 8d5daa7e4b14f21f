#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "ridge/base/dtype.h"
#include "ridge/base/product_kind.h"

namespace ridge {

// What a model computes in. Made once, from what the user asks for; nobody asks for its name.
struct Precision {
  // What products are made of where that is not what everything else is computed in.
  enum class Products : std::uint8_t {
    same,
    tf32,  // f32 operands, of which a GPU rounds each to 19 bits first
    fp8,   // the products of the inner blocks, of operands of 8 bits with a scale each
    int8,  // calibrated after training
  };

  std::string_view name;         // "bf16", as --dtype takes it
  std::string_view description;  // in a line
  DType compute = DType::f32;    // activations, and products unless `products` says otherwise
  DType master = DType::f32;     // parameters and optimizer state
  Products products = Products::same;
  bool loss_scaling = false;  // training multiplies the loss, so that small gradients survive

  // How the products of a model are computed, for which ceilings are measured.
  ProductKind product_kind() const;
  bool operator==(const Precision&) const = default;
};

// fp32, tf32, bf16, fp16, fp8 and int8.
std::span<const Precision> precisions();
// By its name or another spelling ("float32", "half"). UsageError, naming all there are, for a name
// that is none.
const Precision& precision_named(std::string_view name);

// A set of precisions.
class Precisions {
 public:
  constexpr Precisions() = default;                   // all
  constexpr Precisions(Precision::Products products)  // NOLINT(google-explicit-constructor)
      : products_(1u << static_cast<unsigned>(products)) {}
  // Those that compute in f32, with products of nothing else.
  static constexpr Precisions exact_f32() {
    Precisions set(Precision::Products::same);
    set.compute_ = DType::f32;
    return set;
  }
  // Those that compute in this dtype, whatever their products.
  static constexpr Precisions computing_in(DType compute) {
    Precisions set;
    set.compute_ = compute;
    return set;
  }
  constexpr bool contains(const Precision& p) const {
    return (products_ >> static_cast<unsigned>(p.products) & 1u) != 0 &&
           (!compute_ || p.compute == *compute_);
  }

 private:
  unsigned products_ = ~0u;
  std::optional<DType> compute_;
};

}  // namespace ridge
