#pragma once

// The convolutions that a ResidualBottleneck consists of.

#include <array>
#include <cstddef>
#include <span>

#include "ridge/ops/residual_bottleneck.h"

namespace ridge {

struct ResidualBottleneckParts {
  Conv2d inner, projection, expansion, reduction;
  ResidualBottleneck::Operands at;

  explicit ResidualBottleneckParts(const ResidualBottleneck& op)
      : inner{static_cast<const ConvGeometry&>(op), true, false, Epilogue::relu},
        projection{{.stride = op.stride, .layout = op.layout}, true, false, Epilogue::none},
        expansion{{.layout = op.layout}, true, true, Epilogue::relu},
        reduction{{.layout = op.layout}, true, false, Epilogue::relu},
        at(op.operands()) {}

  // The operands of each, of the whole's and what goes before.
  template <class T>
  std::array<T, 3> of_inner(std::span<const T> in) const {
    return {in[at.x], in[at.w1], in[at.b1]};
  }
  template <class T>
  std::array<T, 3> of_projection(std::span<const T> in) const {
    return {in[at.residual], in[at.wp], in[at.bp]};
  }
  template <class T>
  std::array<T, 4> of_expansion(std::span<const T> in, const T& inner_result,
                                const T& residual) const {
    return {inner_result, in[at.w2], in[at.b2], residual};
  }
  template <class T>
  std::array<T, 3> of_reduction(std::span<const T> in, const T& y) const {
    return {y, in[at.w3], in[at.b3]};
  }
};

}  // namespace ridge
