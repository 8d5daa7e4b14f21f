#include "ridge/trace/operator_work.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ridge::trace {
namespace {

// An input: a tensor, or what is none and has no element.
struct Input {
  Dims dims;
  double element_bytes = 0;  // 0: no tensor, or of a type that is not known
  std::string type, value;

  double elements() const {
    double all = 1;
    for (const double dim : dims) all *= dim;
    return element_bytes > 0 || !dims.empty() ? all : 0;
  }
  double bytes() const { return elements() * element_bytes; }
};

double element_bytes_of(std::string_view type) {
  struct Known {
    std::string_view type;
    double bytes;
  };
  static constexpr Known known[] = {{"float", 4},
                                    {"c10::BFloat16", 2},
                                    {"c10::Half", 2},
                                    {"double", 8},
                                    {"int", 4},
                                    {"long int", 8},
                                    {"long", 8},
                                    {"bool", 1},
                                    {"unsigned char", 1},
                                    {"signed char", 1},
                                    {"c10::Float8_e4m3fn", 1},
                                    {"c10::Float8_e5m2", 1}};
  const auto at = std::ranges::find(known, type, &Known::type);
  return at == std::end(known) ? 0 : at->bytes;
}

std::vector<Input> inputs_of(const OperatorCall& call) {
  const auto list = [](std::string_view text) {
    auto parsed = nlohmann::json::parse(text, nullptr, false);
    return parsed.is_array() ? parsed : nlohmann::json::array();
  };
  const nlohmann::json types = list(call.types), values = list(call.values);
  const auto text_at = [](const nlohmann::json& texts, std::size_t i) {
    return i < texts.size() && texts[i].is_string() ? texts[i].get<std::string>() : std::string();
  };
  std::vector<Input> inputs;
  for (Dims& dims : input_dims(call.shapes)) {
    const std::size_t i = inputs.size();
    Input input{.dims = std::move(dims), .type = text_at(types, i), .value = text_at(values, i)};
    input.element_bytes = element_bytes_of(input.type);
    inputs.push_back(std::move(input));
  }
  return inputs;
}

// The numbers of a value as Python writes it: "[2, 2]", "1", "[False, True]".
std::vector<double> numbers_of(std::string value) {
  for (const auto& [python, json] : {std::pair("True", "1"), std::pair("False", "0")})
    for (std::size_t at; (at = value.find(python)) != std::string::npos;)
      value.replace(at, std::strlen(python), json);
  const auto parsed = nlohmann::json::parse(value, nullptr, false);
  if (parsed.is_number()) return {parsed.get<double>()};
  std::vector<double> numbers;
  if (parsed.is_array())
    for (const auto& one : parsed)
      if (one.is_number()) numbers.push_back(one.get<double>());
  return numbers;
}

std::optional<ProductKind> kind_of(const Input& operand) {
  if (operand.type == "float") return ProductKind::f32;
  if (operand.type == "c10::BFloat16") return ProductKind::bf16;
  if (operand.type == "c10::Half") return ProductKind::f16;
  if (operand.type == "c10::Float8_e4m3fn") return ProductKind::f8e4m3;
  if (operand.type == "c10::Float8_e5m2") return ProductKind::f8e5m2;
  if (operand.type == "signed char") return ProductKind::s8;
  return std::nullopt;
}

double product(const Dims& dims, std::size_t count) {
  double all = 1;
  for (std::size_t i = 0; i < std::min(count, dims.size()); ++i) all *= dims[i];
  return all;
}

// a[..., m, k] x b[..., k, n], where one of them may have no leading dimensions.
OperatorWork matmul(const Input& a, const Input& b) {
  const Dims &x = a.dims, &y = b.dims;
  if (x.size() < 2 || y.size() < 2 || x.back() != y[y.size() - 2]) return {};
  const double batch = std::max(product(x, x.size() - 2), product(y, y.size() - 2));
  const double rows = batch * x[x.size() - 2], columns = y.back();
  return {.flops = 2 * rows * x.back() * columns,
          .bytes = a.bytes() + b.bytes() + rows * columns * a.element_bytes,
          .kind = kind_of(a)};
}

// x[..., k] times the transposed weight[n, k].
OperatorWork linear(const Input& x, const Input& weight) {
  if (x.dims.empty() || weight.dims.size() != 2 || x.dims.back() != weight.dims[1]) return {};
  const double rows = product(x.dims, x.dims.size() - 1);
  return {.flops = 2 * rows * weight.dims[0] * weight.dims[1],
          .bytes = x.bytes() + weight.bytes() + rows * weight.dims[0] * x.element_bytes,
          .kind = kind_of(x)};
}

// The three inputs from `first` on are query[batch, heads, m, d], key[batch, heads, n, d] and
// value. There are two products forward, and five backward.
OperatorWork attention(const std::vector<Input>& inputs, std::size_t first, double products,
                       std::optional<std::size_t> causal) {
  if (inputs.size() < first + 3) return {};
  const Input &q = inputs[first], &k = inputs[first + 1], &v = inputs[first + 2];
  if (q.dims.size() != 4 || k.dims.size() != 4 || v.dims.size() != 4 || q.dims[3] != k.dims[3])
    return {};
  double pairs = q.dims[0] * q.dims[1] * q.dims[2] * k.dims[2];
  if (causal && *causal < inputs.size() && inputs[*causal].value == "True") pairs /= 2;
  const double all = q.bytes() + k.bytes() + v.bytes() + q.bytes();
  return {.flops = products * pairs * (q.dims[3] + v.dims[3]),
          .bytes = products > 2 ? 2 * all : all,
          .kind = kind_of(q)};
}

// The elements of y, from x[n, c, h, w] and w[k, c / groups, r, s].
double convolved(const Input& x, const Input& weight, const std::string& stride,
                 const std::string& padding, const std::string& dilation) {
  const std::vector<double> strides = numbers_of(stride), paddings = numbers_of(padding),
                            dilations = numbers_of(dilation);
  const std::size_t spatial = x.dims.size() - 2;
  if (strides.empty() || paddings.empty() || dilations.empty()) return 0;
  const auto at = [](const std::vector<double>& values, std::size_t i) {
    return values[std::min(i, values.size() - 1)];
  };
  double elements = x.dims[0] * weight.dims[0];
  for (std::size_t i = 0; i < spatial; ++i) {
    const double window = at(dilations, i) * (weight.dims[i + 2] - 1) + 1;
    if (at(strides, i) < 1) return 0;
    elements *= std::floor((x.dims[i + 2] + 2 * at(paddings, i) - window) / at(strides, i)) + 1;
  }
  return std::max(elements, 0.0);
}

// The inputs begin with x and weight; the values of stride, padding and dilation stand at these
// places.
OperatorWork convolution(const std::vector<Input>& inputs, std::size_t stride, std::size_t padding,
                         std::size_t dilation) {
  if (inputs.size() <= std::max({stride, padding, dilation})) return {};
  const Input &x = inputs[0], &weight = inputs[1];
  if (x.dims.size() < 3 || weight.dims.size() != x.dims.size() || weight.dims[0] == 0) return {};
  const double y =
      convolved(x, weight, inputs[stride].value, inputs[padding].value, inputs[dilation].value);
  if (y == 0) return {};
  return {.flops = 2 * y * weight.elements() / weight.dims[0],
          .bytes = x.bytes() + weight.bytes() + y * x.element_bytes,
          .kind = kind_of(x)};
}

// The inputs begin with the gradient of y, x and weight; it computes the gradients of x and of the
// weight, where asked for.
OperatorWork convolution_backward(const std::vector<Input>& inputs) {
  if (inputs.size() < 3) return {};
  const Input &dy = inputs[0], &x = inputs[1], &weight = inputs[2];
  if (x.dims.size() < 3 || dy.dims.size() != x.dims.size() || weight.dims.size() != x.dims.size() ||
      weight.dims[0] == 0)
    return {};
  // Without its value both count.
  const std::vector<double> mask =
      inputs.size() > 10 ? numbers_of(inputs[10].value) : std::vector<double>();
  const bool of_x = mask.size() < 2 || mask[0] != 0, of_weight = mask.size() < 2 || mask[1] != 0;
  const double each = 2 * dy.elements() * weight.elements() / weight.dims[0];
  return {.flops = each * (of_x + of_weight),
          .bytes = dy.bytes() + (of_x ? x.bytes() + weight.bytes() : 0) +
                   (of_weight ? x.bytes() + weight.bytes() : 0),
          .kind = kind_of(x)};
}

// How an operator that only moves bytes does so.
enum class Moves {
  pointwise,  // reads its inputs and writes a result of the largest one's size
  inputs,     // each input is read or written once, and what else there is is small
  gather,     // rows of the first input by the last tensor of indices
};

std::optional<Moves> moves_of(std::string_view name) {
  struct Known {
    std::string_view name;
    Moves moves;
  };
  using enum Moves;
  static constexpr Known known[] = {
      {"aten::abs", pointwise},
      {"aten::add", pointwise},
      {"aten::addcdiv", pointwise},
      {"aten::addcmul", pointwise},
      {"aten::clamp", pointwise},
      {"aten::clamp_min", pointwise},
      {"aten::cos", pointwise},
      {"aten::cudnn_batch_norm", pointwise},
      {"aten::cudnn_batch_norm_backward", pointwise},
      {"aten::div", pointwise},
      {"aten::elu", pointwise},
      {"aten::exp", pointwise},
      {"aten::gelu", pointwise},
      {"aten::gelu_backward", pointwise},
      {"aten::hardsigmoid", pointwise},
      {"aten::hardswish", pointwise},
      {"aten::hardswish_backward", pointwise},
      {"aten::hardtanh", pointwise},
      {"aten::leaky_relu", pointwise},
      {"aten::log", pointwise},
      {"aten::masked_fill", pointwise},
      {"aten::mul", pointwise},
      {"aten::native_batch_norm", pointwise},
      {"aten::native_batch_norm_backward", pointwise},
      {"aten::native_dropout", pointwise},
      {"aten::native_dropout_backward", pointwise},
      {"aten::native_group_norm", pointwise},
      {"aten::native_layer_norm", pointwise},
      {"aten::native_layer_norm_backward", pointwise},
      {"aten::neg", pointwise},
      {"aten::pow", pointwise},
      {"aten::relu", pointwise},
      {"aten::rsqrt", pointwise},
      {"aten::sigmoid", pointwise},
      {"aten::sigmoid_backward", pointwise},
      {"aten::silu", pointwise},
      {"aten::silu_backward", pointwise},
      {"aten::sin", pointwise},
      {"aten::sqrt", pointwise},
      {"aten::sub", pointwise},
      {"aten::tanh", pointwise},
      {"aten::tanh_backward", pointwise},
      {"aten::threshold_backward", pointwise},
      {"aten::_fused_rms_norm", pointwise},
      {"aten::_fused_rms_norm_backward", pointwise},
      {"aten::_log_softmax", pointwise},
      {"aten::_log_softmax_backward_data", pointwise},
      {"aten::_softmax", pointwise},
      {"aten::_softmax_backward_data", pointwise},
      {"aten::adaptive_avg_pool2d", inputs},
      {"aten::_adaptive_avg_pool2d", inputs},
      {"aten::amax", inputs},
      {"aten::argmax", inputs},
      {"aten::avg_pool2d", inputs},
      {"aten::copy_", inputs},
      {"aten::fill_", inputs},
      {"aten::linalg_vector_norm", inputs},
      {"aten::max", inputs},
      {"aten::max_pool2d_with_indices", inputs},
      {"aten::mean", inputs},
      {"aten::norm", inputs},
      {"aten::sum", inputs},
      {"aten::var", inputs},
      {"aten::zero_", inputs},
      {"aten::embedding", gather},
      {"aten::index_select", gather},
  };
  const auto find = [](std::string_view wanted) {
    return std::ranges::find(known, wanted, &Known::name);
  };
  auto at = find(name);
  if (at == std::end(known) && name.ends_with('_')) at = find(name.substr(0, name.size() - 1));
  if (at == std::end(known)) return std::nullopt;
  return at->moves;
}

double gathered_bytes(const std::vector<Input>& inputs) {
  if (inputs.empty() || inputs[0].dims.empty()) return 0;
  const Input& rows = inputs[0];
  const Input* indices = nullptr;
  double dimension = 0;
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].type == "long int" || inputs[i].type == "int") indices = &inputs[i];
    if (inputs[i].type == "Scalar" && !inputs[i].value.empty() && i == 1)
      if (const std::vector<double> value = numbers_of(inputs[i].value); !value.empty())
        dimension = value[0];
  }
  if (!indices || dimension < 0 || dimension >= static_cast<double>(rows.dims.size())) return 0;
  const double of_dimension = rows.dims[static_cast<std::size_t>(dimension)];
  if (of_dimension == 0) return 0;
  const double each = rows.bytes() / of_dimension;
  return 2 * each * indices->elements() + indices->bytes();
}

OperatorWork moving(Moves moves, const std::vector<Input>& inputs) {
  if (moves == Moves::gather) return {.bytes = gathered_bytes(inputs)};
  double bytes = 0, largest = 0, element_bytes = 0;
  for (const Input& input : inputs) {
    bytes += input.bytes();
    if (element_bytes == 0) element_bytes = input.element_bytes;
    largest = std::max(largest, input.elements());
  }
  if (moves == Moves::pointwise) bytes += largest * element_bytes;
  return {.bytes = bytes};
}

// Attention's operators that run kernels: where the query stands, whether backward, and where the
// value stands that tells of a causal mask.
struct AttentionOperator {
  std::string_view name;
  std::size_t query;
  double products;
  std::size_t causal;
};
constexpr AttentionOperator attentions[] = {
    {"aten::scaled_dot_product_attention", 0, 2, 5},
    {"aten::_scaled_dot_product_flash_attention", 0, 2, 4},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", 0, 2, 4},
    {"aten::_scaled_dot_product_cudnn_attention", 0, 2, 6},
    {"aten::_scaled_dot_product_efficient_attention", 0, 2, 6},
    {"aten::_scaled_dot_product_flash_attention_backward", 1, 5, 11},
    {"aten::_scaled_dot_product_cudnn_attention_backward", 1, 5, 14},
    {"aten::_scaled_dot_product_efficient_attention_backward", 1, 5, 10},
};

}  // namespace

std::vector<Dims> input_dims(std::string_view shapes) {
  std::vector<Dims> inputs;
  const auto parsed = nlohmann::json::parse(shapes, nullptr, false);
  if (!parsed.is_array()) return inputs;
  for (const auto& input : parsed) {
    Dims& dims = inputs.emplace_back();
    if (input.is_array() &&
        std::ranges::all_of(input, [](const auto& dim) { return dim.is_number(); }))
      for (const auto& dim : input) dims.push_back(dim.template get<double>());
  }
  return inputs;
}

OperatorWork operator_work(const OperatorCall& call) {
  if (call.shapes.empty()) return {};
  const std::string_view name = call.name;
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, name) != names.end();
  };
  const std::optional<Moves> moves = moves_of(name);
  const auto attends = std::ranges::find(attentions, name, &AttentionOperator::name);
  const bool multiplies = is_one_of({"aten::mm", "aten::bmm", "aten::matmul"});
  const bool with_addend =
      is_one_of({"aten::addmm", "aten::addmm_", "aten::baddbmm", "aten::_addmm_activation"});
  const bool convolves =
      is_one_of({"aten::cudnn_convolution", "aten::cudnn_convolution_relu",
                 "aten::miopen_convolution", "aten::convolution", "aten::convolution_backward"});
  if (!moves && attends == std::end(attentions) && !multiplies && !with_addend && !convolves &&
      name != "aten::linear")
    return {};
  const std::vector<Input> inputs = inputs_of(call);
  if (moves) return moving(*moves, inputs);
  if (attends != std::end(attentions))
    return attention(inputs, attends->query, attends->products, attends->causal);
  if (name == "aten::convolution_backward") return convolution_backward(inputs);
  if (name == "aten::cudnn_convolution" || name == "aten::miopen_convolution")
    return convolution(inputs, 3, 2, 4);  // padding, stride, dilation
  if (convolves) return convolution(inputs, 3, 4, 5);
  const std::size_t first = with_addend ? 1 : 0;
  if (inputs.size() < first + 2) return {};
  if (name == "aten::linear") return linear(inputs[0], inputs[1]);
  return matmul(inputs[first], inputs[first + 1]);
}

}  // namespace ridge::trace
