#include "ridge/gpu/kernels/product/padded_product.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "ridge/base/ceil_div.h"
#include "ridge/base/error.h"
#include "ridge/gpu/kernels/product/padded_rows.h"

namespace ridge::gpu {
namespace {

// What a part of the rows of c copies: with what else passes through the second-level cache, about
// half of its 50 or 60 MB.
constexpr std::int64_t part_bytes = std::int64_t{24} << 20;
// A part is so many rows, or a multiple: two tiles.
constexpr std::int64_t part_rows = 256;
constexpr std::size_t most_workspace = std::size_t{128} << 20;

bool begin_aligned(std::int64_t row, DType dtype) { return padded_pitch(row, dtype) == row; }

std::int64_t bytes_of(std::int64_t elements, DType dtype) {
  return elements * static_cast<std::int64_t>(size_of(dtype));
}

std::size_t copy_bytes(std::int64_t rows, std::int64_t pitch, DType dtype) {
  constexpr std::int64_t alignment = 256;
  return static_cast<std::size_t>(ceil_div(rows * bytes_of(pitch, dtype), alignment) * alignment);
}

class PaddedProduct final : public Product {
 public:
  PaddedProduct(const Context& gpu, const ProductShape& shape)
      : gpu_(gpu),
        s_(shape),
        copies_a_(!begin_aligned(shape.row_a(), shape.in)),
        copies_b_(!begin_aligned(shape.row_b(), shape.in)),
        copies_c_(!begin_aligned(shape.row_c(), shape.out)),
        rows_(rows_of_part()) {
    const ProductShape part = part_of(rows_);
    if (copies_a_) a_bytes_ = copy_bytes(s_.trans_a ? s_.k : rows_, part.pitch_a, s_.in);
    if (copies_b_) b_bytes_ = copy_bytes(s_.trans_b ? s_.n : s_.k, part.pitch_b, s_.in);
    if (copies_c_) c_bytes_ = copy_bytes(rows_, part.pitch_c, s_.out);
  }

  bool copies() const { return copies_a_ || copies_b_ || copies_c_; }

  // What multiplies the parts. DeviceError if there is no such plan.
  void ask_for_plans() {
    const auto plan = [&](std::int64_t rows) {
      ProductPtr product = std::move(gpu_.blas->products(part_of(rows), 1).front());
      inner_bytes_ = std::max(inner_bytes_, product->workspace());
      return product;
    };
    part_ = plan(rows_);
    if (const std::int64_t rest = s_.m % rows_) rest_ = plan(rest);
  }

  std::size_t workspace() const override { return a_bytes_ + b_bytes_ + c_bytes_ + inner_bytes_; }

  void run(Stream stream, const void* a, const void* b, void* c, void* workspace, OperandScales,
           ProductTerms) const override {
    auto* const left = static_cast<std::byte*>(workspace);
    std::byte *const right = left + a_bytes_, *const sums = right + b_bytes_;
    if (copies_b_)
      copy_rows_16_bit(gpu_, {const_cast<void*>(b), s_.row_b()},
                       {right, padded_pitch(s_.row_b(), s_.in)}, s_.trans_b ? s_.n : s_.k,
                       s_.row_b());
    for (std::int64_t row = 0; row < s_.m; row += rows_) {
      const ProductShape part = part_of(std::min(rows_, s_.m - row));
      const void* const from = address(const_cast<void*>(a), s_.trans_a ? row : row * s_.k, s_.in);
      void* const to = address(c, row * s_.n, s_.out);
      if (copies_a_)
        copy_rows_16_bit(gpu_, {const_cast<void*>(from), s_.row_a()}, {left, part.pitch_a},
                         s_.trans_a ? s_.k : part.m, s_.trans_a ? part.m : s_.k);
      const Product& product = part.m == rows_ ? *part_ : *rest_;
      product.run(stream, copies_a_ ? left : from, copies_b_ ? right : b, copies_c_ ? sums : to,
                  sums + c_bytes_);
      if (copies_c_) write_back({sums, part.pitch_c}, {to, s_.n}, part.m);
    }
  }

 private:
  static void* address(void* matrix, std::int64_t i, DType dtype) {
    return static_cast<std::byte*>(matrix) + bytes_of(i, dtype);
  }

  std::int64_t rows_of_part() const {
    std::int64_t bytes = 0;  // of a row of c, and what it copies of a
    if (copies_a_) bytes += bytes_of(padded_pitch(s_.k, s_.in), s_.in);
    if (copies_c_) bytes += bytes_of(padded_pitch(s_.n, s_.out), s_.out);
    if (bytes == 0) return s_.m;
    const std::int64_t most = std::max(part_rows, part_bytes / bytes / part_rows * part_rows);
    const std::int64_t even = ceil_div(s_.m, ceil_div(s_.m, most));
    return std::min(s_.m, ceil_div(even, part_rows) * part_rows);
  }

  // So many rows of c, of the copies or what needs none.
  ProductShape part_of(std::int64_t rows) const {
    ProductShape part = s_;
    part.m = rows;
    part.pitch_a = s_.row_a();
    if (copies_a_) part.pitch_a = padded_pitch(s_.trans_a ? rows : s_.k, s_.in);
    part.pitch_b = copies_b_ ? padded_pitch(s_.row_b(), s_.in) : s_.row_b();
    part.pitch_c = copies_c_ ? padded_pitch(s_.n, s_.out) : s_.n;
    part.accumulate = s_.accumulate && !copies_c_;
    return part;
  }

  void write_back(PitchedRows from, PitchedRows to, std::int64_t rows) const {
    if (s_.out == DType::f32)
      copy_rows_f32(gpu_, from, to, rows, s_.n, s_.accumulate);
    else
      copy_rows_16_bit(gpu_, from, to, rows, s_.n);
  }

  const Context& gpu_;
  const ProductShape s_;
  const bool copies_a_, copies_b_, copies_c_;
  const std::int64_t rows_;  // of c, in a part
  ProductPtr part_, rest_;   // of rows_, and of what is left at the end
  // Sizes in the workspace: of the copies, and of what multiplies them.
  std::size_t a_bytes_ = 0, b_bytes_ = 0, c_bytes_ = 0, inner_bytes_ = 0;
};

}  // namespace

ProductPtr padded_product(const Context& gpu, const ProductShape& shape) {
  if (!is_16_bit(shape.in) || shape.in_b || shape.batch != 1 || shape.scaled || shape.bias ||
      shape.residual || shape.relu || shape.alignment != 16 || shape.has_pitch() ||
      (shape.accumulate && shape.out != DType::f32))
    return nullptr;
  auto product = std::make_unique<PaddedProduct>(gpu, shape);
  if (!product->copies()) return nullptr;
  try {
    product->ask_for_plans();
  } catch (const DeviceError&) {  // such as portable kernels, which need no copies
    return nullptr;
  }
  return product->workspace() <= most_workspace ? std::move(product) : nullptr;
}

}  // namespace ridge::gpu
