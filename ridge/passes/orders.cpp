#include "ridge/passes/orders.h"

#include <algorithm>
#include <numeric>

namespace ridge {
namespace {

std::int64_t extent(const Shape& shape, std::uint8_t dim) { return shape[static_cast<int>(dim)]; }

// Without dimensions of extent 1.
Order essence(const Shape& shape, Order order) {
  std::erase_if(order, [&](std::uint8_t dim) { return extent(shape, dim) == 1; });
  return order;
}

// The order of this essence; a dimension of extent 1 comes after the one that it is meant to come
// after.
Order completed(const Shape& shape, Order essence) {
  for (std::uint8_t dim = 0; dim < shape.rank(); ++dim) {
    if (extent(shape, dim) != 1) continue;
    auto at = essence.begin();
    if (dim > 0) at = std::ranges::find(essence, dim - 1) + 1;
    essence.insert(at, dim);
  }
  return essence;
}

// Dimensions before and after a reshape that have the same elements, as few as possible, without
// those of extent 1.
struct Group {
  Order from, to;
};

std::vector<Group> groups_of(const Shape& from, const Shape& to) {
  const Order a = essence(from, identity_order(from)), b = essence(to, identity_order(to));
  std::vector<Group> groups;
  for (std::size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    Group group;
    std::int64_t before = 1, after = 1;
    do {
      if (before <= after) {
        group.from.push_back(a[i]);
        before *= extent(from, a[i++]);
      } else {
        group.to.push_back(b[j]);
        after *= extent(to, b[j++]);
      }
    } while (before != after);
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace

Order identity_order(const Shape& shape) {
  Order order(shape.rank());
  std::iota(order.begin(), order.end(), std::uint8_t{0});
  return order;
}

bool is_identity(const Order& order) { return std::ranges::is_sorted(order); }

Shape ordered(const Shape& shape, const Order& order) {
  std::vector<std::int64_t> dims;
  for (const std::uint8_t dim : order) dims.push_back(extent(shape, dim));
  return Shape(dims);
}

std::uint32_t place_of(const Order& order, std::uint32_t dim) {
  return static_cast<std::uint32_t>(std::ranges::find(order, dim) - order.begin());
}

Order relabeled(const Order& order, const std::uint8_t* by) {
  Order result;
  for (const std::uint8_t dim : order)
    result.push_back(static_cast<std::uint8_t>(std::find(by, by + order.size(), dim) - by));
  return result;
}

Order between(const Order& from, const Order& to) {
  Order result;
  for (const std::uint8_t dim : to)
    result.push_back(static_cast<std::uint8_t>(place_of(from, dim)));
  return result;
}

bool is_same_memory(const Shape& shape, const Order& a, const Order& b) {
  return essence(shape, a) == essence(shape, b);
}

OrderedReshape reshape_in_order(const Shape& from, const Shape& to, const Order& order) {
  std::vector<Group> groups = groups_of(from, to);
  const auto first = [&](const Group& group) {
    std::uint32_t place = ~0u;
    for (const std::uint8_t dim : group.from) place = std::min(place, place_of(order, dim));
    return place;
  };
  std::ranges::sort(groups, {}, first);
  Order operand, result;
  for (const Group& group : groups) {
    operand.insert(operand.end(), group.from.begin(), group.from.end());
    result.insert(result.end(), group.to.begin(), group.to.end());
  }
  operand = completed(from, std::move(operand));
  if (is_same_memory(from, operand, order)) operand = order;
  return {operand, completed(to, std::move(result))};
}

}  // namespace ridge
