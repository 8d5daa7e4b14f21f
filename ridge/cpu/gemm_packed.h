#pragma once

#include "ridge/cpu/gemm.h"

namespace ridge {

// Our own product, by a plan that is not oneDNN's.
GemmPtr make_packed_gemm(const GemmShape& shape, const GemmPlan& plan);

}  // namespace ridge
