#include "ridge/analyze/tensor_operators.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "ridge/base/error.h"

namespace ridge {
namespace {

using Type = TensorOpType;

struct Entry {
  TensorOpName name;
  Op op;
};

// The first eighteen are those of the benchmark's list, in its order.
std::vector<Entry> entries() {
  const auto named = [](Type type, Op op) { return Entry{{name_of(op), type}, op}; };
  const auto unary = [](std::string_view name, ActivationKind kind) {
    return Entry{{name, Type::unary}, Activation{kind}};
  };
  const auto reduction = [](std::string_view name, Reduction kind) {
    return Entry{{name, Type::reduction}, ReduceAll{kind}};
  };
  return {
      named(Type::binary, Add{}),
      named(Type::binary, Mul{}),
      {{"div", Type::binary}, Arithmetic{ArithmeticKind::div}},
      {{"sub", Type::binary}, Arithmetic{ArithmeticKind::sub}},
      {{"eq", Type::binary}, Arithmetic{ArithmeticKind::equal}},
      unary("exp", ActivationKind::exp),
      named(Type::unary, Relu{}),
      unary("tanh", ActivationKind::tanh),
      unary("sqrt", ActivationKind::sqrt),
      {{"sum", Type::reduction}, SumTo{{}}},
      reduction("prod", Reduction::prod),
      reduction("norm", Reduction::norm),
      reduction("max", Reduction::max),
      reduction("mean", Reduction::mean),
      reduction("std", Reduction::std),
      reduction("var", Reduction::var),
      reduction("argmax", Reduction::argmax),
      reduction("argmin", Reduction::argmin),
      named(Type::unary, Silu{}),
      unary("gelu", ActivationKind::gelu),
      unary("sigmoid", ActivationKind::sigmoid),
      unary("hardswish", ActivationKind::hard_swish),
      unary("relu6", ActivationKind::relu6),
      named(Type::unary, Softmax{}),
      named(Type::product, MatMul{}),
      {{"add", Type::sparse}, IndexAdd{}},
  };
}
constexpr std::size_t listed = 18;

Entry entry_named(std::string_view name, bool sparse) {
  std::vector<std::string_view> names;
  for (const Entry& entry : entries()) {
    if ((entry.name.type == Type::sparse) != sparse) continue;
    if (entry.name.name == name) return entry;
    names.push_back(entry.name.name);
  }
  throw UsageError("there is no {}operator '{}'; choose one of {}", sparse ? "sparse " : "", name,
                   fmt::join(names, ", "));
}

std::string dims_of(const Shape& shape) {
  return shape.rank() == 0 ? "1" : fmt::format("{}", fmt::join(shape.dims(), "-"));
}

bool has_second(Type type) { return type == Type::binary || type == Type::product; }

// The operands of rows being added to a table, as sparse tensors are whose first dimension is.
std::vector<TensorType> sparse_operands(const TensorOpRequest& request) {
  const Shape &table = request.first, &ids = request.second;
  if (table.rank() != 2 || ids.rank() != 1)
    throw UsageError(
        "a sparse tensor is added to --input1-dim ROWS-COLUMNS and has --input2-dim ROWS, not {} "
        "and "
        "{}",
        dims_of(table), dims_of(ids));
  return {{request.dtype, table}, {DType::i32, ids}, {request.dtype, {ids.numel(), table[-1]}}};
}

struct ModelRow {
  std::string_view name, first, second;
  bool sparse = false;
};

// Facts of ROCm's torch_tensor_ops_bench.py: what training BERT and DLRM asks of tensors.
constexpr ModelRow model_rows[] = {
    {"add", "32-128-1024", "32-128-1024"},
    {"add", "32-16-128-128", "32-1-1-128"},
    {"add", "64-128-1024", "64-128-1024"},
    {"add", "64-16-128-128", "64-1-1-128"},
    {"add", "4-512-1024", "4-512-1024"},
    {"add", "4-16-512-512", "4-1-1-512"},
    {"add", "8-512-1024", "8-512-1024"},
    {"add", "8-16-512-512", "8-1-1-512"},
    {"add_", "32-128-1024", "1024"},
    {"add_", "64-128-1024", "1024"},
    {"add_", "4-512-1024", "1024"},
    {"add_", "8-512-1024", "1024"},
    {"add_", "512-13", "512-13"},
    {"add_", "512-512", "512-512"},
    {"add_", "256-512", "256-512"},
    {"add_", "256-256", "256-256"},
    {"add_", "128-256", "128-256"},
    {"add_", "128-128", "128-128"},
    {"add_", "1024-480", "1024-480"},
    {"add_", "1024-1024", "1024-1024"},
    {"add_", "512-1024", "512-1024"},
    {"add_", "1-256", "1-256"},
    {"add_", "1", "1"},
    {"div", "32-16-128-128", "1"},
    {"div", "64-16-128-128", "1"},
    {"div", "4-16-512-512", "1"},
    {"div", "8-16-512-512", "1"},
    {"sum", "32-128-1024", ""},
    {"sum", "64-128-1024", ""},
    {"sum", "4-512-1024", ""},
    {"sum", "8-512-1024", ""},
    {"add_", "32709138-128", "851968", true},
    {"relu_", "32768-512", ""},
    {"relu_", "32768-256", ""},
    {"relu_", "32768-128", ""},
    {"relu_", "32768-1024", ""},
};

}  // namespace

std::string_view name_of(TensorOpType type) {
  constexpr std::string_view names[] = {"unary", "binary", "reduction", "product", "sparse"};
  return names[static_cast<std::size_t>(type)];
}

std::vector<TensorOpName> tensor_operators() {
  std::vector<TensorOpName> names;
  for (const Entry& entry : entries()) names.push_back(entry.name);
  return names;
}

Shape shape_from_dims(std::string_view text, std::string_view flag) {
  std::vector<std::int64_t> dims;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  for (;;) {
    std::int64_t dim = 0;
    const auto [next, error] = std::from_chars(at, end, dim);
    if (error != std::errc() || dim < 1 || dims.size() == Shape::max_rank) break;
    dims.push_back(dim);
    if (next == end) try {
        return Shape(dims);
      } catch (const ShapeError& shape_error) {
        throw UsageError("{} is '{}': {}", flag, text, shape_error.what());
      }
    if (*next != '-') break;
    at = next + 1;
  }
  throw UsageError("{} is '{}'; it takes up to {} positive extents, as in 64-1024-1024", flag, text,
                   Shape::max_rank);
}

OperatorCase tensor_operator(const TensorOpRequest& request) {
  std::string_view name = request.name;
  const bool in_place = request.in_place || name.ends_with('_');
  if (name.ends_with('_')) name.remove_suffix(1);
  const Entry entry = entry_named(name, request.sparse);
  const Type type = entry.name.type;
  if (in_place && (type == Type::reduction || type == Type::product || name == "softmax"))
    throw UsageError("{} cannot work in place: only operators of single elements can", name);
  if (type == Type::sparse && !in_place)
    throw UsageError("a sparse tensor is added in place: ask for {}_, or --inplace", name);
  OperatorCase result{
      .label = fmt::format("{}{}({}", name, in_place ? "_" : "", dims_of(request.first)),
      .op = entry.op,
      .in = {{request.dtype, request.first}},
      .in_place = in_place};
  if (has_second(type)) {
    result.in.push_back({request.dtype, request.second});
    result.label += ", " + dims_of(request.second);
  }
  if (type == Type::sparse) {
    result.in = sparse_operands(request);
    result.label += fmt::format(", sparse {}", dims_of(result.in[2].shape));
  }
  result.label += ")";
  try {
    const std::vector<TensorType> out = infer(result.op, result.in);
    if (in_place && out[0] != result.in[0])
      throw UsageError("{} cannot work in place: its result is {}", result.label,
                       out[0].to_string());
  } catch (const ShapeError& error) {
    throw UsageError("{}", error.what());
  }
  return result;
}

std::vector<TensorOpRequest> predefined_operators(const Shape& first, const Shape& second,
                                                  DType dtype) {
  std::vector<TensorOpRequest> requests;
  for (const Entry& entry : entries())
    requests.push_back({std::string(entry.name.name), first, second, dtype});
  requests.resize(listed);
  return requests;
}

std::vector<TensorOpRequest> model_operators(DType dtype) {
  std::vector<TensorOpRequest> requests;
  for (const ModelRow& row : model_rows)
    requests.push_back({std::string(row.name), shape_from_dims(row.first, ""),
                        row.second.empty() ? Shape{} : shape_from_dims(row.second, ""), dtype,
                        false, row.sparse});
  return requests;
}

}  // namespace ridge
