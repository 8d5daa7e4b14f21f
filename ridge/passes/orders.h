#pragma once

// Orders of dimensions: how a tensor may lie in memory otherwise than the graph means it.

#include <cstdint>
#include <vector>

#include "ridge/base/shape.h"

namespace ridge {

// Dimension i in memory is dimension order[i] of the tensor as the graph defines it.
using Order = std::vector<std::uint8_t>;

Order identity_order(const Shape& shape);
bool is_identity(const Order& order);
// The shape of the tensor as it lies in memory.
Shape ordered(const Shape& shape, const Order& order);
// The dimension in memory that holds dimension `dim` of the graph's tensor.
std::uint32_t place_of(const Order& order, std::uint32_t dim);
// The order of permute(x, by) in the memory of x, which lies there in `order`.
Order relabeled(const Order& order, const std::uint8_t* by);
// The permutation that brings memory from order `from` to order `to`.
Order between(const Order& from, const Order& to);

// Whether both are the same sequence of elements: dimensions of extent 1 may stand anywhere.
bool is_same_memory(const Shape& shape, const Order& a, const Order& b);

// The orders under which a reshape moves no data: only adjacent dimensions are joined or split.
struct OrderedReshape {
  Order operand;  // the one that the operand has to be brought to; its own, if that will do
  Order result;
};
OrderedReshape reshape_in_order(const Shape& from, const Shape& to, const Order& order);

}  // namespace ridge
