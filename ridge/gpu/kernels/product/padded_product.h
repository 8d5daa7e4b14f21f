#pragma once

// Products of 16 bits whose matrices have rows that do not begin at multiples of 16 bytes, such as
// those of a vocabulary of 50,257: the library's fast kernels do not take these. They are copied to
// where rows do begin so, a part of the rows of c at a time, which stays in the second-level cache
// until it is multiplied or written back.

#include "ridge/gpu/device/context.h"
#include "ridge/gpu/vendor/blas.h"

namespace ridge::gpu {

// By the library's plan that is expected to be the fastest. Null where all rows begin at multiples
// of 16 bytes, where no plan takes rows that do not lie one behind the other, for batches, for
// operands of other than 16 bits, and where the workspace would be too large.
ProductPtr padded_product(const Context& gpu, const ProductShape& shape);

}  // namespace ridge::gpu
