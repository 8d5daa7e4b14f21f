#pragma once

// Products in tiles, on the matrix units of any card. Sums are f32, always in the same order.

#include <cstddef>
#include <vector>

#include "ridge/gpu/device/card.h"
#include "ridge/gpu/vendor/blas.h"

namespace ridge::gpu {

// Up to `most` plans, the one that is expected to be the fastest first; none for dtypes that no
// kernel takes.
std::vector<ProductPtr> portable_products(const Card& card, const ProductShape& shape,
                                          std::size_t most);

}  // namespace ridge::gpu
