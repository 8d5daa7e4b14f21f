#include "ridge/gpu/vendor/blas.h"

#include <fmt/format.h>

#include <utility>

#include "ridge/gpu/vendor/stand_in.h"

namespace ridge::gpu {
namespace {

class LibraryOrPortable final : public Blas {
 public:
  LibraryOrPortable(std::shared_ptr<Blas> library, const Card& card)
      : blas_(std::move(library), make_portable_blas(card)) {}

  std::vector<ProductPtr> products(const ProductShape& shape, std::size_t most) override {
    return blas_->products(shape, most);
  }
  std::string version() override { return blas_->version(); }
  std::string warning() override {
    if (blas_.refusal().empty()) return {};
    return fmt::format("Products run slower, by portable kernels: {}", blas_.refusal());
  }

 private:
  WithStandIn<Blas> blas_;
};

}  // namespace

std::shared_ptr<Blas> library_or_portable(std::shared_ptr<Blas> library, const Card& card) {
  return std::make_shared<LibraryOrPortable>(std::move(library), card);
}

std::string to_string(const ProductShape& s) {
  return fmt::format("{}{}[{} x {}{} x {} x {}{}] -> {}{}{}{}{}{}{}{}", name_of(s.in),
                     s.in_b ? fmt::format(" {}", name_of(*s.in_b)) : "", s.batch, s.m,
                     s.trans_a ? "T" : "", s.k, s.n, s.trans_b ? "T" : "", name_of(s.out),
                     s.accumulate ? " +=" : "", s.fast_accumulation ? " fast" : "",
                     s.scaled ? " scaled"
                     : s.tf32 ? " tf32"
                              : "",
                     s.bias ? " + bias" : "", s.residual ? " + residual" : "",
                     s.relu ? " relu" : "", s.alignment == 16 ? "" : " unaligned");
}

}  // namespace ridge::gpu
