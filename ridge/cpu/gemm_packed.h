#pragma once

#include "ridge/cpu/gemm.h"

namespace ridge {

// Our own product, by a plan that is not oneDNN's.
GemmPtr make_packed_gemm(const GemmShape& shape, const GemmPlan& plan);

// The number of stages, each of some blocks of k, in which a plan of this kind packs the operands
// that its tiles share.
std::int64_t packed_stages(const GemmShape& shape, GemmKind kind);

}  // namespace ridge
