#include "ridge/base/product_kind.h"

#include <algorithm>
#include <iterator>

#include "ridge/base/error.h"

namespace ridge {
namespace {

constexpr std::string_view names[] = {"f32", "tf32",   "bf16x6", "bf16",
                                      "f16", "f8e4m3", "f8e5m2", "s8"};

}  // namespace

std::string_view name_of(ProductKind kind) { return names[static_cast<std::size_t>(kind)]; }

std::optional<ProductKind> product_kind_named(std::string_view name) {
  const auto* const found = std::ranges::find(names, name);
  if (found == std::end(names)) return std::nullopt;
  return static_cast<ProductKind>(found - std::begin(names));
}

ProductKind product_kind_of(DType operands) {
  if (const auto kind = product_kind_named(name_of(operands))) return *kind;
  throw Error("no product has operands of {}", name_of(operands));
}

}  // namespace ridge
