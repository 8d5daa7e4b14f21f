#include "ridge/base/error.h"
#include "ridge/gpu/kernels/product/portable_products.h"

namespace ridge::gpu {
namespace {

class PortableBlas final : public Blas {
 public:
  explicit PortableBlas(const Card& card) : card_(card) {}

  std::vector<ProductPtr> products(const ProductShape& shape, std::size_t most) override {
    std::vector<ProductPtr> products = portable_products(card_, shape, most);
    if (products.empty()) throw DeviceError("no portable kernel multiplies {}", to_string(shape));
    return products;
  }

  // Counts up where kernels become others, so that times of old ones are not taken for theirs.
  std::string version() override { return "portable products 1"; }

 private:
  Card card_;
};

}  // namespace

std::shared_ptr<Blas> make_portable_blas(const Card& card) {
  return std::make_shared<PortableBlas>(card);
}

}  // namespace ridge::gpu
