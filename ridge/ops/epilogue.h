#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ridge/ops/element_function.h"

namespace ridge {

struct Op;

// What is done to the sums of a convolution or of a linear layer before they are written.
enum class Epilogue : std::uint8_t { none, relu, relu6, silu, hard_swish, gelu };

const ElementFunction& element_function(Epilogue epilogue);  // of none: x itself
inline std::string_view name_of(Epilogue epilogue) { return element_function(epilogue).name; }

// The epilogue that computes what an operator does; none if there is no such.
Epilogue as_epilogue(const Op& op);

// The operands of a convolution or of a linear layer that may add a bias and a residual to its
// sums: which is which, where one that is not there is past the end.
struct LayerOperands {
  std::size_t x = 0, weight = 1, bias, residual, count;

  constexpr LayerOperands(bool has_bias, bool has_residual)
      : bias(has_bias ? 2 : 2 + has_residual),
        residual(2 + has_bias),
        count(2 + has_bias + has_residual) {}
};

}  // namespace ridge
