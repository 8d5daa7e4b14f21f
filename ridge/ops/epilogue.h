#pragma once

#include <cstdint>
#include <string_view>

namespace ridge {

// What is done to the sums of a convolution or of a linear layer before they are written, each as
// the operator of that name defines it (ops/relu.h, silu.h, activation.h).
enum class Epilogue : std::uint8_t { none, relu, relu6, silu, hard_swish, gelu };

std::string_view name_of(Epilogue epilogue);  // "gelu"

// FLOPs of one element, as that operator counts them.
std::int64_t flops_of(Epilogue epilogue);

// In double precision, for references.
double applied(Epilogue epilogue, double x);
// Its derivative; at a kink the one that PyTorch takes: 0 at the ends of relu, relu6 and hard
// swish.
double derivative(Epilogue epilogue, double x);
// FLOPs of one element of dy times that, as the gradients of those operators count them.
std::int64_t derivative_flops_of(Epilogue epilogue);

}  // namespace ridge
