#pragma once

// What the rules of operators have in common that apply a function to each element.

#include <string_view>
#include <vector>

#include "ridge/ops/check.h"
#include "ridge/ops/element_function.h"
#include "ridge/ops/operator.h"

namespace ridge {

// A result of the operands' type; `count` operands of one type.
std::vector<TensorType> infer_same(std::string_view op, Types in, std::size_t count);

// y[i] = f(x[i]) of operand x, and dx[i] = dy[i] * f'(x[i]) of operands (dy, x).
void apply_value(const ElementFunction& f, ReferenceCall& call);
void apply_derivative(const ElementFunction& f, ReferenceCall& call);

// What they are tried on: a scalar, a single element, odd and prime extents, what is no multiple of
// a vector, and enough for several threads.
std::vector<Shape> elementwise_shapes();

}  // namespace ridge
