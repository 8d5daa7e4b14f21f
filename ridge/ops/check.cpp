#include "ridge/ops/check.h"

#include <algorithm>

namespace ridge {

std::string list_of(Types types) {
  std::string list;
  for (const TensorType& type : types) list += (list.empty() ? "" : ", ") + type.to_string();
  return list;
}

void check_count(std::string_view op, Types in, std::size_t count) {
  if (in.size() != count)
    throw ShapeError("{} takes {} operands, not {}: {}", op, count, in.size(), list_of(in));
}

void check_min_rank(std::string_view op, Types in, std::size_t i, std::size_t rank) {
  if (in[i].shape.rank() < rank)
    throw ShapeError("{}: operand {} needs at least {} dimensions: {}", op, i, rank, list_of(in));
}

void check_rank(std::string_view op, Types in, std::size_t i, std::size_t rank) {
  if (in[i].shape.rank() != rank)
    throw ShapeError("{}: operand {} needs {} dimensions: {}", op, i, rank, list_of(in));
}

void check_dtype(std::string_view op, Types in, std::size_t i, DTypes dtypes) {
  if (std::ranges::find(dtypes, in[i].dtype) == dtypes.end())
    throw ShapeError("{} does not take {} as operand {}: {}", op, name_of(in[i].dtype), i,
                     list_of(in));
}

void check_one_16_bit(std::string_view op, Types in, DType a, DType b) {
  if (is_16_bit(a) && is_16_bit(b) && a != b)
    throw ShapeError("{} does not take {} together with {}: {}", op, name_of(a), name_of(b),
                     list_of(in));
}

void check_same_dtype(std::string_view op, Types in, std::size_t i, std::size_t j) {
  if (in[i].dtype != in[j].dtype)
    throw ShapeError("{}: operands {} and {} differ in dtype: {}", op, i, j, list_of(in));
}

void check_same_type(std::string_view op, Types in, std::size_t i, std::size_t j) {
  if (in[i] != in[j])
    throw ShapeError("{}: operands {} and {} differ in type: {}", op, i, j, list_of(in));
}

void check_type(std::string_view op, Types in, std::size_t i, const TensorType& type) {
  if (in[i] != type)
    throw ShapeError("{}: operand {} is {} where {} is needed", op, i, in[i].to_string(),
                     type.to_string());
}

Cost streaming_cost(std::int64_t flops, Types in, Types out) {
  Cost cost{.flops = flops, .causal_flops = flops};
  for (const TensorType& type : in) cost.bytes_read += static_cast<std::int64_t>(type.bytes());
  for (const TensorType& type : out) cost.bytes_written += static_cast<std::int64_t>(type.bytes());
  return cost;
}

}  // namespace ridge
