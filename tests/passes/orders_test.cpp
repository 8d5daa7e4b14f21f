#include "ridge/passes/orders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace ridge {
namespace {

using Elements = std::vector<std::int64_t>;

// What lies in memory where x is meant, by the definition of an order.
Elements laid_out(const Shape& shape, const Order& order, const Elements& x) {
  Elements memory;
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::vector<std::int64_t> at(shape.rank());
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t place = shape.rank(); place-- > 0;) {
      const auto dim = order[place];
      at[dim] = rest % shape[dim];
      rest /= shape[dim];
    }
    std::int64_t meant = 0;
    for (std::size_t d = 0; d < shape.rank(); ++d)
      meant = meant * shape[static_cast<int>(d)] + at[d];
    memory.push_back(x[static_cast<std::size_t>(meant)]);
  }
  return memory;
}

Elements counted(const Shape& shape) {
  Elements x(static_cast<std::size_t>(shape.numel()));
  std::iota(x.begin(), x.end(), 0);
  return x;
}

TEST(Orders, SayWhereDimensionsLie) {
  const Shape shape{2, 3, 4, 5};
  const Order nhwc{0, 2, 3, 1};
  EXPECT_EQ(ordered(shape, nhwc), (Shape{2, 4, 5, 3}));
  EXPECT_EQ(place_of(nhwc, 1), 3u);
  EXPECT_TRUE(is_identity(identity_order(shape)) && !is_identity(nhwc));
  // A permute that brings channels last means what lies there already.
  const std::uint8_t last[] = {0, 2, 3, 1};
  EXPECT_TRUE(is_identity(relabeled(nhwc, last)));
  EXPECT_EQ(relabeled(identity_order(shape), last), (Order{0, 3, 1, 2}));
  EXPECT_EQ(between(identity_order(shape), nhwc), nhwc);
  EXPECT_EQ(between(nhwc, identity_order(shape)), (Order{0, 3, 1, 2}));
}

TEST(Orders, AreTheSameWhereOnlyExtentsOfOneMove) {
  EXPECT_TRUE(is_same_memory({2, 3, 1, 1}, {0, 2, 3, 1}, {0, 1, 2, 3}));
  EXPECT_TRUE(is_same_memory({2, 1, 4, 5}, {0, 2, 3, 1}, {0, 1, 2, 3}));
  EXPECT_FALSE(is_same_memory({2, 3, 1, 5}, {0, 2, 3, 1}, {0, 1, 2, 3}));
}

TEST(ReshapeInOrder, KeepsWhatStaysTogether) {
  // The halves of the channels, of pixels that are one dimension.
  const auto halves = reshape_in_order({2, 6, 5, 5}, {2, 2, 3, 25}, {0, 2, 3, 1});
  EXPECT_EQ(halves.operand, (Order{0, 2, 3, 1}));
  EXPECT_EQ(halves.result, (Order{0, 3, 1, 2}));
  // Turned halves are no channels again before they are moved.
  const auto turned = reshape_in_order({2, 3, 2, 25}, {2, 6, 5, 5}, {0, 3, 2, 1});
  EXPECT_EQ(turned.operand, (Order{0, 3, 1, 2}));
  EXPECT_EQ(turned.result, (Order{0, 2, 3, 1}));
  // Channels and pixels become one only in the order that is meant.
  const auto flat = reshape_in_order({2, 6, 5, 5}, {2, 150}, {0, 2, 3, 1});
  EXPECT_TRUE(is_identity(flat.operand) && is_identity(flat.result));
  // One pixel is none.
  const auto pooled = reshape_in_order({2, 6, 1, 1}, {2, 6}, {0, 2, 3, 1});
  EXPECT_EQ(pooled.operand, (Order{0, 2, 3, 1}));
  EXPECT_TRUE(is_identity(pooled.result));
}

// The same elements, whatever is reshaped to what in whatever order.
TEST(ReshapeInOrder, MeansTheSame) {
  std::mt19937 random(1);
  const std::vector<Shape> shapes{{24},         {4, 6},       {2, 12},     {2, 2, 6},
                                  {1, 24, 1},   {3, 8},       {2, 3, 4},   {4, 3, 2},
                                  {2, 3, 2, 2}, {2, 1, 3, 4}, {6, 1, 4},   {2, 2, 3, 2},
                                  {1, 4, 6, 1}, {8, 3},       {2, 2, 2, 3}};
  for (const Shape& from : shapes)
    for (const Shape& to : shapes)
      for (int trial = 0; trial < 4; ++trial) {
        Order order = identity_order(from);
        std::ranges::shuffle(order, random);
        const OrderedReshape orders = reshape_in_order(from, to, order);
        ASSERT_EQ(orders.operand.size(), from.rank());
        ASSERT_EQ(orders.result.size(), to.rank());
        EXPECT_EQ(laid_out(from, orders.operand, counted(from)),
                  laid_out(to, orders.result, counted(to)))
            << from.to_string() << " to " << to.to_string();
        if (is_identity(order)) {
          EXPECT_TRUE(is_identity(orders.result));
        }
      }
}

}  // namespace
}  // namespace ridge
