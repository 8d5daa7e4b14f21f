#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ridge/base/product_kind.h"

namespace ridge::trace {

using Dims = std::vector<double>;

// The dimensions of each of an operator's inputs, from JSON; of what is no tensor, none.
std::vector<Dims> input_dims(std::string_view shapes);

// A call of an operator of PyTorch, as a trace tells of it.
struct OperatorCall {
  std::string_view name;    // "aten::mm"
  std::string_view shapes;  // of its inputs, as JSON: [[512, 64], [64, 256]]
  std::string_view types;   // as JSON: ["c10::BFloat16", "c10::BFloat16"]
  std::string_view values;  // of inputs that are no tensors, as JSON: ["", "", "[3, 3]", "1"]
};

// The least that a call has to do.
struct OperatorWork {
  double flops = 0;  // a multiplication and an addition for each term of a product; 0: not known
  double bytes = 0;  // of its operands and results, each read or written once; 0: not known
  std::optional<ProductKind> kind;  // of its products; that of f32 operands is f32
};

// Known are products (mm, addmm, bmm, baddbmm, linear, matmul), convolutions and their gradients,
// attention and its gradients (with a causal mask half of it, where the values tell), and of what
// only moves bytes the pointwise operators, norms, softmax, pooling, reductions, copies and
// gathers. Nothing is known of others, and where shapes and types do not fit. A convolution's
// result follows from its padding and stride, which old traces do not tell.
OperatorWork operator_work(const OperatorCall& call);

}  // namespace ridge::trace
