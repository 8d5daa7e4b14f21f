#pragma once

// The checks that shape rules share. Each throws ShapeError naming the operator and the operands.

#include <string_view>

#include "ridge/base/error.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/operator.h"

namespace ridge {

std::string list_of(Types types);  // "f32[2, 3], i32[4]"

// Exactly `count` operands.
void check_count(std::string_view op, Types in, std::size_t count);
// Operand i has at least `rank` dimensions.
void check_min_rank(std::string_view op, Types in, std::size_t i, std::size_t rank);
// Operand i has exactly `rank` dimensions.
void check_rank(std::string_view op, Types in, std::size_t i, std::size_t rank);
// Operand i has a floating dtype among `dtypes`; by default those of an operator that says nothing.
void check_dtype(std::string_view op, Types in, std::size_t i, DTypes dtypes = f32_and_16_bit);
// a and b are not both of 16 bits and different: no kernel takes such a pair.
void check_one_16_bit(std::string_view op, Types in, DType a, DType b);
// Operands i and j have the same dtype, respectively the same type.
void check_same_dtype(std::string_view op, Types in, std::size_t i, std::size_t j);
void check_same_type(std::string_view op, Types in, std::size_t i, std::size_t j);
// Operand i is exactly of `type`.
void check_type(std::string_view op, Types in, std::size_t i, const TensorType& type);

// Bytes of every operand read once and every result written once, with the FLOPs given; all of
// them are needed under a causal mask too.
Cost streaming_cost(std::int64_t flops, Types in, Types out);

}  // namespace ridge
