#pragma once

#include <utility>

#include "ridge/ops/op.h"

namespace ridge {

// Types of operands, by their shape.
inline TensorType f32(Shape shape) { return {DType::f32, std::move(shape)}; }
inline TensorType bf16(Shape shape) { return {DType::bf16, std::move(shape)}; }

}  // namespace ridge
