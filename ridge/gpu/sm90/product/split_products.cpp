#include <algorithm>
#include <memory>

#include "ridge/gpu/kernels/product/products_sm90.h"
#include "ridge/gpu/kernels/product/split_bf16.h"
#include "ridge/gpu/sm90/product/products.h"

namespace ridge::gpu {
namespace {

// How a product of f32 is divided, so that components of a few parts only need memory at a time: by
// rows of a where they lie together; else by terms, and the products of the parts are added up.
struct SplitParts {
  enum class Along : std::uint8_t { rows, terms } along;
  std::int64_t part;  // rows or terms at a time

  static SplitParts of(const ProductShape& s, const Card& card) {
    if (!s.trans_a) return {Along::rows, rows_of(s, card)};
    if (s.trans_b) return {Along::rows, s.m};
    const std::size_t bytes = split_bytes(s.k, s.m) + split_bytes(s.k, s.n);
    return {Along::terms, part_of(s.k, parts(bytes, card))};
  }

 private:
  static std::int64_t parts(std::size_t bytes, const Card& card) {
    const std::size_t most = card.crossovers().split_operand_bytes;
    return static_cast<std::int64_t>((bytes + most - 1) / most);
  }
  // In whole pairs of tiles.
  static std::int64_t part_of(std::int64_t extent, std::int64_t parts) {
    constexpr std::int64_t multiple = 256;
    return std::min(extent, (extent + parts * multiple - 1) / (parts * multiple) * multiple);
  }
  // Tries a few numbers of parts and takes that of the least rounds: one that is not full takes as
  // long.
  static std::int64_t rows_of(const ProductShape& s, const Card& card) {
    const std::int64_t fewest = parts(split_bytes(s.m, s.k), card);
    if (fewest == 1) return s.m;
    std::int64_t best = 0, least_rounds = 0;
    for (std::int64_t parts = fewest; parts < 2 * fewest + 2; ++parts) {
      ProductShape part = s;
      part.m = part_of(s.m, parts);
      const std::int64_t rounds = (s.m + part.m - 1) / part.m *
                                  sm90::split_product_rounds(part, card.multiprocessors).rounds;
      if (best != 0 && rounds >= least_rounds) continue;
      best = part.m;
      least_rounds = rounds;
    }
    return best;
  }
};

class SplitProduct final : public Product {
 public:
  SplitProduct(const Context& gpu, const ProductShape& shape)
      : gpu_(gpu), shape_(shape), parts_(SplitParts::of(shape, gpu.card)) {
    const ProductShape part = part_of(parts_.part);
    left_bytes_ = aligned(part.trans_a ? split_bytes(part.k, part.m) : split_bytes(part.m, part.k));
    right_bytes_ =
        aligned(part.trans_b ? split_bytes(part.n, part.k) : split_bytes(part.k, part.n));
    inner_parts_ = sm90::split_product_rounds(part, gpu.card.multiprocessors).parts;
    if (inner_parts_ > 1)
      sum_bytes_ = static_cast<std::size_t>(inner_parts_ * part.m * part.n) * sizeof(float);
  }

  std::size_t workspace() const override { return left_bytes_ + right_bytes_ + sum_bytes_; }
  void run(Stream, const void* a, const void* b, void* c, void* workspace, OperandScales,
           ProductTerms) const override {
    const auto *from_a = static_cast<const float*>(a), *from_b = static_cast<const float*>(b);
    auto* to = static_cast<float*>(c);
    auto* const left = static_cast<std::byte*>(workspace);
    std::byte* const right = left + left_bytes_;
    auto* const sums = reinterpret_cast<float*>(right + right_bytes_);
    const bool by_rows = parts_.along == SplitParts::Along::rows;
    const std::int64_t extent = by_rows ? shape_.m : shape_.k;
    for (std::int64_t at = 0; at < extent; at += parts_.part) {
      ProductShape s = part_of(std::min(parts_.part, extent - at));
      s.accumulate = shape_.accumulate || (!by_rows && at > 0);
      write_split(gpu_, from_a, s.trans_a ? s.k : s.m, s.trans_a ? s.m : s.k, left);
      if (!by_rows || at == 0)
        write_split(gpu_, from_b, s.trans_b ? s.n : s.k, s.trans_b ? s.k : s.n, right);
      multiply(s, left, right, sums, to);
      from_a += s.m * s.k;
      if (by_rows)
        to += s.m * s.n;
      else
        from_b += s.k * s.n;
    }
  }

 private:
  static std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }
  ProductShape part_of(std::int64_t rows_or_terms) const {
    ProductShape part = shape_;
    (parts_.along == SplitParts::Along::rows ? part.m : part.k) = rows_or_terms;
    return part;
  }
  void multiply(const ProductShape& s, const void* a, const void* b, float* sums, float* c) const {
    const bool whole = inner_parts_ == 1;
    sm90::split_product(s, inner_parts_, a, b, whole ? c : sums, gpu_.card.multiprocessors,
                        gpu_.stream);
    if (!whole) add_parts(gpu_, sums, inner_parts_, s.m * s.n, s.accumulate, c);
  }

  const Context& gpu_;
  const ProductShape shape_;
  const SplitParts parts_;
  // Sizes in the workspace: of either operand, split, and of sums that are yet to be added up.
  std::size_t left_bytes_ = 0, right_bytes_ = 0, sum_bytes_ = 0;
  int inner_parts_ = 1;
};

}  // namespace

ProductPtr split_product_sm90(const Context& gpu, const ProductShape& shape) {
  if (!gpu.card.is_sm90() || shape.in != DType::f32 || shape.out != DType::f32 ||
      shape.batch != 1 || shape.bias || shape.residual || shape.relu || shape.alignment != 16)
    return nullptr;
  auto product = std::make_unique<SplitProduct>(gpu, shape);
  const std::size_t most = gpu.card.crossovers().split_workspace_bytes;
  return product->workspace() <= most ? std::move(product) : nullptr;
}

}  // namespace ridge::gpu
