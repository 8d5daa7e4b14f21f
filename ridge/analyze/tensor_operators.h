#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/analyze/operator_timing.h"
#include "ridge/base/dtype.h"
#include "ridge/base/shape.h"

namespace ridge {

// Tensor operators by the names that PyTorch has for them, for the benchmark of the workshop
// (ROCm's TorchTensorOpsBench).

// Sparse: to a table, rows are added that ids name.
enum class TensorOpType : std::uint8_t { unary, binary, reduction, product, sparse };
std::string_view name_of(TensorOpType type);  // "unary"

struct TensorOpName {
  std::string_view name;  // "add"
  TensorOpType type;
};
// All of them, those of the benchmark's own list first.
std::vector<TensorOpName> tensor_operators();

// What is to be measured: `second` is the other operand of a binary operator, which broadcasts
// against the first, or the transposed right operand of a product, or how many rows of the first
// are added to by a sparse operator.
struct TensorOpRequest {
  std::string name;  // "add"; "add_" is add in place
  Shape first, second;
  DType dtype = DType::f32;
  bool in_place = false, sparse = false;
};

// "64-1024-1024" as a shape. UsageError, naming the flag, for anything else.
Shape shape_from_dims(std::string_view text, std::string_view flag);

// UsageError for an unknown name, naming the nearest ones, for shapes that do not fit, and for an
// operator that cannot work in place.
OperatorCase tensor_operator(const TensorOpRequest& request);

// The benchmark's lists: its first operators, each on 64 x 1024 x 1024 elements unless other shapes
// are given; and the shapes that training BERT and DLRM gives to its operators.
std::vector<TensorOpRequest> predefined_operators(const Shape& first, const Shape& second,
                                                  DType dtype);
std::vector<TensorOpRequest> model_operators(DType dtype);

}  // namespace ridge
