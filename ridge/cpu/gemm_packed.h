#pragma once

#include "ridge/cpu/gemm.h"

namespace ridge {

// Our own product, by a plan that is not oneDNN's.
GemmPtr make_packed_gemm(const GemmShape& shape, const GemmPlan& plan);

// In how many stages a plan of this kind packs what its tiles share: each is some blocks of k.
std::int64_t packed_stages(const GemmShape& shape, GemmKind kind);

}  // namespace ridge
