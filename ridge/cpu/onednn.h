#pragma once

#include <string>

#include "ridge/cpu/gemm.h"

namespace ridge {

// Products by oneDNN, each library call on one thread: we cut C into tiles whose boundaries depend
// on the shape alone and share them out ourselves, so the result has the same bits on any number of
// threads (the library splits k by the number of threads it finds). DeviceError if the library has
// no such product.
GemmPtr make_onednn_gemm(const GemmShape& shape);

// Whether this CPU and library multiply bf16 operands natively.
bool onednn_supports_bf16();

std::string onednn_version();  // "3.7.0"

}  // namespace ridge
