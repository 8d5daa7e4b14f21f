#pragma once

#include <limits>

#include "ridge/ops/operator.h"

namespace ridge {

// y[.., q, k] = x[.., q, k] for k <= q and `value` beyond. With -infinity: the scores of queries q,
// which see keys k up to their own position. With 0: the gradient of any such mask. The last two
// extents are equal.
struct CausalMask {
  static constexpr std::string_view name = "causal_mask";

  float value = -std::numeric_limits<float>::infinity();

  RIDGE_OPERATOR(CausalMask);
  std::vector<Value> grad(GradBuilder& builder) const;
};

// y = exp(x - max) / sum(exp(x - max)) over the last dimension, in f32 inside. An element of
// -infinity gives exactly 0; a row needs at least one finite element.
struct Softmax {
  static constexpr std::string_view name = "softmax";
  static constexpr std::string_view aten = "aten::_softmax";

  RIDGE_OPERATOR(Softmax);
  std::vector<Value> grad(GradBuilder& builder) const;
  bool by_rows(Types) const { return true; }
};

// Takes (dy, y) and gives dx = y * (dy - sum(dy * y)) over the last dimension.
struct SoftmaxGrad {
  static constexpr std::string_view name = "softmax_grad";
  static constexpr std::string_view aten = "aten::_softmax_backward_data";

  RIDGE_OPERATOR(SoftmaxGrad);
};

// y = softmax(scale * x) under the causal mask: the scores x[.., q, k] of queries q and keys k, of
// which a query sees those up to its own position. y is exactly 0 beyond, where x is not even read.
// The last two extents are equal.
struct MaskedSoftmax {
  static constexpr std::string_view name = "masked_softmax";
  static constexpr bool partial = true;  // up to the diagonal

  float scale = 1.0f;

  RIDGE_OPERATOR(MaskedSoftmax);
  std::vector<Value> grad(GradBuilder& builder) const;
};

// Takes (dy, y) and gives dx = scale * y * (dy - sum(dy * y)) for the keys that a query sees and
// exactly 0 beyond, where neither operand is read.
struct MaskedSoftmaxGrad {
  static constexpr std::string_view name = "masked_softmax_grad";
  static constexpr bool partial = true;  // up to the diagonal

  float scale = 1.0f;

  RIDGE_OPERATOR(MaskedSoftmaxGrad);
};

Value causal_mask(Value scores);
Value softmax(Value x);

}  // namespace ridge
