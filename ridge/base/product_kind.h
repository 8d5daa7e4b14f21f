#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ridge/base/dtype.h"

namespace ridge {

// How products are computed, which decides how fast they are: in the dtype of their operands; or,
// of f32 operands, as tf32, whose operands are rounded to 19 bits first, or as bf16x6, six products
// of operands split into bf16, to f32's accuracy.
enum class ProductKind : std::uint8_t { f32, tf32, bf16x6, bf16, f16, f8e4m3, f8e5m2, s8 };

std::string_view name_of(ProductKind kind);  // "bf16x6"; that of a dtype is the dtype's
std::optional<ProductKind> product_kind_named(std::string_view name);

// That of operands of a dtype, those of f32 as they are. Error for one that no product takes.
ProductKind product_kind_of(DType operands);

}  // namespace ridge
