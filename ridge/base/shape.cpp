#include "ridge/base/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ridge/base/error.h"

namespace ridge {

Shape::Shape(std::initializer_list<std::int64_t> dims)
    : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const std::int64_t> dims) : rank_(dims.size()) {
  if (dims.size() > max_rank)
    throw ShapeError("a shape has at most {} dimensions, not {}", max_rank, dims.size());
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 1) throw ShapeError("extent {} of dimension {} is not positive", dims[i], i);
    dims_[i] = dims[i];
    if (__builtin_mul_overflow(numel_, dims[i], &numel_) || numel_ > (std::int64_t{1} << 60))
      throw ShapeError("shape [{}] has more elements than can be addressed", fmt::join(dims, ", "));
  }
}

std::int64_t Shape::operator[](int dim) const {
  const int index = dim < 0 ? dim + static_cast<int>(rank_) : dim;
  if (index < 0 || index >= static_cast<int>(rank_))
    throw ShapeError("dimension {} of {} does not exist", dim, to_string());
  return dims_[static_cast<std::size_t>(index)];
}

std::int64_t Shape::rows(std::size_t inner) const {
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + inner < rank_; ++i) rows *= dims_[i];
  return rows;
}

std::string Shape::to_string() const { return fmt::format("[{}]", fmt::join(dims(), ", ")); }

Shape broadcast(const Shape& a, const Shape& b) {
  std::array<std::int64_t, Shape::max_rank> dims{};
  const std::size_t rank = std::max(a.rank(), b.rank());
  for (std::size_t i = 0; i < rank; ++i) {  // i counts from the innermost dimension
    const std::int64_t x = i < a.rank() ? a.dims()[a.rank() - 1 - i] : 1;
    const std::int64_t y = i < b.rank() ? b.dims()[b.rank() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1)
      throw ShapeError("{} and {} do not broadcast: {} against {}", a.to_string(), b.to_string(), x,
                       y);
    dims[rank - 1 - i] = std::max(x, y);
  }
  return Shape(std::span<const std::int64_t>(dims.data(), rank));
}

std::string TensorType::to_string() const {
  return fmt::format("{}{}", name_of(dtype), shape.to_string());
}

}  // namespace ridge
