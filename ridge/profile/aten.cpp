#include "ridge/profile/aten.h"

#include <algorithm>
#include <utility>

#include "ridge/graph/op_rules.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

// Not here, for want of an exact equivalent: causal_mask (masked_fill takes a mask), rope, adamw
// (one for all parameters there), global_norm, permute (a view there), cross_entropy_grad.
constexpr std::pair<std::string_view, std::string_view> equivalents[] = {
    {"accumulate", "aten::add_"},
    {"add", "aten::add"},
    {"cast", "aten::_to_copy"},
    {"cross_entropy", "aten::cross_entropy_loss"},
    {"embedding", "aten::embedding"},
    {"embedding_grad", "aten::embedding_dense_backward"},
    {"fill", "aten::full"},
    {"mul", "aten::mul"},
    {"relu", "aten::relu"},
    {"relu_grad", "aten::threshold_backward"},
    {"rms_norm", "aten::_fused_rms_norm"},
    {"rms_norm_grad", "aten::_fused_rms_norm_backward"},
    {"scale", "aten::mul"},
    {"silu", "aten::silu"},
    {"silu_grad", "aten::silu_backward"},
    {"softmax", "aten::_softmax"},
    {"softmax_grad", "aten::_softmax_backward_data"},
    {"sum_to", "aten::sum"},
};

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
  AtenCall call;
  if (const auto* product = std::get_if<MatMul>(&node.op->variant())) {
    const TensorType &a = graph.info(node.inputs[0]).type, &b = graph.info(node.inputs[1]).type;
    const bool batched = a.shape.rank() > 2;
    call.name = batched ? "aten::bmm" : "aten::mm";
    call.inputs = {factor(a, product->trans_a, batched), factor(b, product->trans_b, batched)};
    return call;
  }
  const std::string_view name = name_of(*node.op);
  const auto* const known =
      std::ranges::find(equivalents, name, &std::pair<std::string_view, std::string_view>::first);
  call.name =
      known != std::end(equivalents) ? std::string(known->second) : "ridge::" + std::string(name);
  for (const ValueId input : node.inputs) {
    const TensorType& type = graph.info(input).type;
    call.inputs.push_back(operand(type, type.shape.dims()));
  }
  return call;
}

}  // namespace ridge
