#pragma once

// The convolutions that a ResidualBottleneck consists of.

#include <array>
#include <cstddef>
#include <span>

#include "ridge/ops/residual_bottleneck.h"

namespace ridge {

struct ResidualBottleneckParts {
  Conv2d inner, projection, expansion, reduction;
  std::size_t of_reduction_begin;

  explicit ResidualBottleneckParts(const ResidualBottleneck& op)
      : inner{static_cast<const ConvGeometry&>(op), true, false, Epilogue::relu},
        projection{{.stride = op.stride, .layout = op.layout}, true, false, Epilogue::none},
        expansion{{.layout = op.layout}, true, true, Epilogue::relu},
        reduction{{.layout = op.layout}, true, false, Epilogue::relu},
        of_reduction_begin(op.reduction_operand()) {}

  // The operands of each, of the whole's and what goes before.
  template <class T>
  std::array<T, 3> of_inner(std::span<const T> in) const {
    return {in[0], in[1], in[2]};
  }
  template <class T>
  std::array<T, 3> of_projection(std::span<const T> in) const {
    return {in[5], in[6], in[7]};
  }
  template <class T>
  std::array<T, 4> of_expansion(std::span<const T> in, const T& inner_result,
                                const T& residual) const {
    return {inner_result, in[3], in[4], residual};
  }
  template <class T>
  std::array<T, 3> of_reduction(std::span<const T> in, const T& y) const {
    return {y, in[of_reduction_begin], in[of_reduction_begin + 1]};
  }
};

}  // namespace ridge
