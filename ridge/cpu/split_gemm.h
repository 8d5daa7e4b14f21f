#pragma once

#include <vector>

#include "ridge/cpu/gemm.h"

namespace ridge {

// Products of f32 operands split into bf16, on a processor with AMX; see split_kernel.h. They are
// as exact as sums in f32, but numbers below 2^-110 lose their last bits, and what an infinity
// touches becomes NaN.

// The few plans worth timing, all of the same bits; none where there are no such products of this
// shape.
std::vector<GemmPlan> split_gemm_plans(const GemmShape& shape);

// The one of the largest tiles that give a handful of cores work. Error if there are none.
GemmPlan default_split_plan(const GemmShape& shape);

// Error if there are none.
GemmPtr make_split_gemm(const GemmShape& shape, const GemmPlan& plan);

}  // namespace ridge
