#pragma once

// Types of what layer_norm.cpp and rms_norm.cpp have beside x of shape [..., columns].

#include "ridge/graph/graph.h"

namespace ridge {

// A statistic of each row.
inline TensorType per_row(const TensorType& x) {
  const auto dims = x.shape.dims();
  return {DType::f32, Shape(dims.first(dims.size() - 1))};
}

// A parameter of each column.
inline TensorType per_column(const TensorType& x) { return {DType::f32, {x.shape[-1]}}; }

}  // namespace ridge
