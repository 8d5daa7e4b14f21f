#pragma once

// Orders of dimensions: how a tensor may lie in memory otherwise than the graph means it.

#include <cstdint>
#include <vector>

#include "ridge/base/shape.h"

namespace ridge {

// Dimension i of what lies in memory is dimension order[i] of what is meant.
using Order = std::vector<std::uint8_t>;

Order identity_order(const Shape& shape);
bool is_identity(const Order& order);
// What lies in memory.
Shape ordered(const Shape& shape, const Order& order);
// Where dimension `dim` of what is meant lies.
std::uint32_t place_of(const Order& order, std::uint32_t dim);
// The order of permute(x, by) in the memory of x, which lies there in `order`.
Order relabelled(const Order& order, const std::uint8_t* by);
// Permute this to have that.
Order between(const Order& from, const Order& to);

// Whether both are the same sequence of elements: dimensions of extent 1 may stand anywhere.
bool is_same_memory(const Shape& shape, const Order& a, const Order& b);

// How a reshape goes on under other orders: only what is next to each other is joined or cut.
struct OrderedReshape {
  Order operand;  // the one that the operand has to be brought to; its own, if that will do
  Order result;
};
OrderedReshape reshape_in_order(const Shape& from, const Shape& to, const Order& order);

}  // namespace ridge
