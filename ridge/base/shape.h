#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "ridge/base/dtype.h"

namespace ridge {

// The extents of a dense row-major tensor, outermost first. No dimensions make a scalar of one
// element. Every extent is at least 1 and the product fits 63 bits; anything else is a ShapeError.
class Shape {
 public:
  static constexpr std::size_t max_rank = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  explicit Shape(std::span<const std::int64_t> dims);

  std::size_t rank() const { return rank_; }
  std::int64_t numel() const { return numel_; }
  // Negative indices count from the back: shape[-1] is the innermost extent.
  std::int64_t operator[](int dim) const;
  std::span<const std::int64_t> dims() const { return {dims_.data(), rank_}; }

  // The product of all extents but the last `inner` ones: the rows of a tensor seen as a matrix.
  std::int64_t rows(std::size_t inner = 1) const;

  std::string to_string() const;  // "[8, 128, 256]"
  bool operator==(const Shape&) const = default;

 private:
  std::array<std::int64_t, max_rank> dims_{};
  std::size_t rank_ = 0;
  std::int64_t numel_ = 1;
};

// The shape of an elementwise result under NumPy's broadcasting rule; ShapeError if there is none.
Shape broadcast(const Shape& a, const Shape& b);

// What is known of a tensor before it exists.
struct TensorType {
  DType dtype = DType::f32;
  Shape shape;

  std::int64_t numel() const { return shape.numel(); }
  std::size_t bytes() const { return static_cast<std::size_t>(shape.numel()) * size_of(dtype); }
  std::string to_string() const;  // "f32[8, 128, 256]"
  bool operator==(const TensorType&) const = default;
};

using Types = std::span<const TensorType>;

}  // namespace ridge
