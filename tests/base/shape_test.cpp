#include "ridge/base/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "tests/base/message_of.h"

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Shape, ScalarHasOneElement) {
  const Shape scalar;
  EXPECT_EQ(scalar.rank(), 0u);
  EXPECT_EQ(scalar.numel(), 1);
  EXPECT_EQ(scalar.rows(), 1);
  EXPECT_EQ(scalar.to_string(), "[]");
}

TEST(Shape, ExtentsAndElements) {
  const Shape shape{2, 3, 5};
  EXPECT_EQ(shape.rank(), 3u);
  EXPECT_EQ(shape.numel(), 30);
  EXPECT_THAT(std::vector(shape.dims().begin(), shape.dims().end()), ElementsAre(2, 3, 5));
  EXPECT_EQ(shape.to_string(), "[2, 3, 5]");
}

TEST(Shape, IndexesFromBothEnds) {
  const Shape shape{2, 3, 5};
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[2], 5);
  EXPECT_EQ(shape[-1], 5);
  EXPECT_EQ(shape[-3], 2);
  EXPECT_THROW(shape[3], ShapeError);
  EXPECT_THROW(shape[-4], ShapeError);
  EXPECT_THROW(Shape{}[0], ShapeError);
  EXPECT_THROW(Shape{}[-1], ShapeError);
}

TEST(Shape, RowsLeaveOutTheInnermostExtents) {
  const Shape shape{2, 3, 5};
  EXPECT_EQ(shape.rows(0), 30);
  EXPECT_EQ(shape.rows(), 6);
  EXPECT_EQ(shape.rows(2), 2);
  EXPECT_EQ(shape.rows(3), 1);
  EXPECT_EQ(shape.rows(4), 1);
}

TEST(Shape, EqualityLooksAtRankAndExtents) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
  EXPECT_NE(Shape{}, Shape{1});
}

TEST(Shape, RefusesExtentsThatAreNotPositive) {
  EXPECT_THAT(message_of<ShapeError>([] { Shape{2, 0}; }), HasSubstr("extent 0 of dimension 1"));
  EXPECT_THAT(message_of<ShapeError>([] { Shape{-3}; }), HasSubstr("extent -3 of dimension 0"));
}

TEST(Shape, RefusesTooManyDimensions) {
  EXPECT_EQ((Shape{1, 1, 1, 1, 1, 1}).rank(), Shape::max_rank);
  EXPECT_THAT(message_of<ShapeError>([] { Shape{1, 1, 1, 1, 1, 1, 1}; }), HasSubstr("at most 6"));
}

TEST(Shape, RefusesMoreElementsThanCanBeAddressed) {
  const std::int64_t large = std::int64_t{1} << 30;
  EXPECT_EQ((Shape{large, large}).numel(), std::int64_t{1} << 60);
  EXPECT_THROW((Shape{large, large, 2}), ShapeError);
  EXPECT_THROW((Shape{large, large, large}), ShapeError);  // 2^90 overflows
  EXPECT_THROW((Shape{large, large, large, large}), ShapeError);
}

TEST(Broadcast, FollowsNumPy) {
  EXPECT_EQ(broadcast({2, 3}, {2, 3}), (Shape{2, 3}));
  EXPECT_EQ(broadcast({2, 3}, {3}), (Shape{2, 3}));
  EXPECT_EQ(broadcast({3}, {2, 1}), (Shape{2, 3}));
  EXPECT_EQ(broadcast({}, {4, 5}), (Shape{4, 5}));
  EXPECT_EQ(broadcast({1}, {}), (Shape{1}));
  EXPECT_EQ(broadcast({8, 1, 6, 1}, {7, 1, 5}), (Shape{8, 7, 6, 5}));
}

TEST(Broadcast, RefusesDifferentExtents) {
  EXPECT_THAT(message_of<ShapeError>([] { broadcast({2, 3}, {2}); }), HasSubstr("[2, 3] and [2]"));
  EXPECT_THROW(broadcast({2, 3}, {3, 3}), ShapeError);
}

TEST(TensorType, BytesAndName) {
  const TensorType type{DType::bf16, {8, 128}};
  EXPECT_EQ(type.numel(), 1024);
  EXPECT_EQ(type.bytes(), 2048u);
  EXPECT_EQ(type.to_string(), "bf16[8, 128]");
  EXPECT_EQ((TensorType{DType::f32, {}}).bytes(), 4u);
  EXPECT_NE(type, (TensorType{DType::f32, {8, 128}}));
}

}  // namespace
}  // namespace ridge
