#pragma once

#include <string_view>

namespace ridge::trace {

// The floating-point operations of one call of an operator of PyTorch, by its name and the shapes
// of its inputs as JSON ("[[512, 64], [64, 256]]"): a multiplication and an addition for each term
// of a product. Known are the products (mm, addmm, bmm, baddbmm, linear, matmul) and attention; 0
// for all others, and where the shapes do not fit. A convolution's need its padding and stride,
// which shapes do not tell.
double operator_flops(std::string_view name, std::string_view shapes);

}  // namespace ridge::trace
