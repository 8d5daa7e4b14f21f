#include "ridge/plan/lifetimes.h"

#include <gtest/gtest.h>

#include "ridge/ops/binary.h"
#include "ridge/ops/layout.h"
#include "ridge/ops/op.h"
#include "ridge/ops/unary.h"
#include "ridge/plan/memory.h"

namespace ridge {
namespace {

TEST(Lifetimes, AValueDiesWithItsLastUse) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {16}});
  const Value a = scale(x, 2.0f);  // node 0
  const Value b = scale(a, 3.0f);  // node 1
  const Value c = add(a, b);       // node 2: the last to use a and b
  const Value d = scale(c, 1.0f);  // node 3: nobody uses d
  const Lifetimes life = lifetimes_of(graph);
  EXPECT_EQ(life.born[0], std::vector{a.id});
  EXPECT_TRUE(life.dead[0].empty());
  EXPECT_TRUE(life.dead[1].empty());
  EXPECT_EQ(life.dead[2], (std::vector{a.id, b.id}));
  EXPECT_EQ(life.dead[3], (std::vector{c.id, d.id}));
  EXPECT_TRUE(life.permanent[x.id]);
  // x always; a and b and c together; nothing more.
  EXPECT_EQ(peak_live_bytes(graph, life, std::vector<std::size_t>(4)), 4 * 64u);
  EXPECT_EQ(peak_live_bytes(graph, life, std::vector<std::size_t>{0, 0, 100, 0}), 4 * 64u + 128u);
}

TEST(Lifetimes, AReshapeSharesAndProlongsItsOperand) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {4, 4}});
  const Value a = scale(x, 2.0f);    // node 0
  const Value r = reshape(a, {16});  // node 1
  const Value b = scale(r, 3.0f);    // node 2
  graph.keep(b, "b");
  const Lifetimes life = lifetimes_of(graph);
  EXPECT_EQ(life.storage[r.id], a.id);
  EXPECT_TRUE(life.born[1].empty());
  EXPECT_EQ(life.dead[2], std::vector{a.id});  // b is kept
  EXPECT_TRUE(life.permanent[b.id]);
}

TEST(Lifetimes, AnUpdateInPlaceKeepsTheStateItWrites) {
  Graph graph;
  const Value sum = graph.state("sum", {DType::f32, {8}}, Role::gradient, Init::zeros());
  const Value x = graph.input("x", {DType::f32, {8}});
  const Value updated = graph.apply1(Accumulate{}, {sum, x});
  const Lifetimes life = lifetimes_of(graph);
  EXPECT_EQ(life.storage[updated.id], sum.id);
  EXPECT_TRUE(life.permanent[sum.id]);
  EXPECT_TRUE(life.dead[0].empty());
}

}  // namespace
}  // namespace ridge
