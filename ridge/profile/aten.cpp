#include "ridge/profile/aten.h"

#include <fmt/format.h>

#include <utility>

#include "ridge/graph/op_rules.h"

namespace ridge {
namespace {

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::split_f32:
      return "float";
    case DType::bf16:
      return "c10::BFloat16";
    case DType::f8e4m3:
      return "c10::Float8_e4m3fn";
    case DType::f8e5m2:
      return "c10::Float8_e5m2";
    case DType::f16:
      return "c10::Half";
    case DType::i32:
      return "int";
    case DType::s8:
      return "signed char";
  }
  return "";
}

AtenCall::Operand operand(const TensorType& type, std::span<const std::int64_t> dims) {
  AtenCall::Operand result;
  result.dims.assign(dims.begin(), dims.end());
  result.strides.resize(dims.size());
  std::int64_t stride = 1;
  for (std::size_t d = dims.size(); d-- > 0; stride *= dims[d]) result.strides[d] = stride;
  result.dtype = dtype_name(type.dtype);
  return result;
}

// A product's operand as aten::mm or aten::bmm would see it: [m, k] or [batch, m, k].
AtenCall::Operand factor(const TensorType& type, bool transposed, bool batched) {
  const Shape& shape = type.shape;
  std::vector<std::int64_t> dims;
  if (batched) dims.push_back(shape.rows(2));
  dims.push_back(shape[-2]);
  dims.push_back(shape[-1]);
  AtenCall::Operand result = operand(type, dims);
  if (transposed) {
    std::swap(result.dims.end()[-1], result.dims.end()[-2]);
    std::swap(result.strides.end()[-1], result.strides.end()[-2]);
  }
  return result;
}

}  // namespace

AtenCall aten_call(const Graph& graph, const Node& node) {
  const std::vector<TensorType> types = graph.types_of(node.inputs);
  const std::string_view name = aten_name(*node.op, types);
  AtenCall call{.name =
                    name.empty() ? fmt::format("ridge::{}", name_of(*node.op)) : std::string(name)};
  const auto transposed = stored_transposed(*node.op);
  if (!name.empty() && transposed) {
    const bool batched = types[0].shape.rank() > 2;
    call.inputs = {factor(types[0], transposed->a, batched),
                   factor(types[1], transposed->b, batched)};
    return call;
  }
  for (const TensorType& type : types) call.inputs.push_back(operand(type, type.shape.dims()));
  return call;
}

}  // namespace ridge
